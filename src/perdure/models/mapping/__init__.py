"""What the adapters share between the wire items and a provider's JSON: pure functions of values.

Words. A *head* is a request body up to its first item. A *turn* is one message of a provider that
wants the user's and the assistant's in turns, a *piece* what one item adds to it; a *form* says
how a provider writes both. A *mark* is a member `perdure:NAME` that one provider gets back and no
other. A *loss* is what a request does not say as it was given. An *assembler* makes events of the
frames of an answer, with a *writer*.
"""
