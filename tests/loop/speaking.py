"""Messages of the user during a run."""


def said(text):
    return {"role": "user", "content": text}


def saying(handle, *messages, then):
    """A step of a script: the user sends messages during the model call."""

    def answer(asked):
        for message in messages:
            assert handle.steer(message)
        return then

    return answer
