"""HTTP: one request sent, and its answer as it comes. It knows nothing of any provider.

Words. A *body* is a list of *fragments*, bytes that were encoded once and are sent as they are. An
*exchange* is one request sent and its answer. A *refusal* is an answer that is not a success, as an
error. A *decoder* makes events of the bytes of an answer; an *event stream* reads it, and gives the
connection back. A *tape* stands in place of the network.

Only `transport` imports the HTTP client, and is imported when something is first sent.
"""
