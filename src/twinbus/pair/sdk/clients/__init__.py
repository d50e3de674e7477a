"""The public classes of a pair: the SDK's client, sender and receiver over two namespaces.

They only join what the other folders do with what the SDK is (`pair/sdk`); nothing else imports them.
"""
