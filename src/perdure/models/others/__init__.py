"""Other models than a drive's own: after a failure, beside a slow one, or for one request.

Words. A *target* is who is to answer. A *fallback* asks the next after a failure, a *hedge* asks a
second when the first is slow, a *route* chooses for each request.
"""
