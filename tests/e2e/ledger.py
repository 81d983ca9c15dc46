"""What a test has said to a node, and what was answered."""


class Ledger:
    """What was acknowledged. An item of a user is True (seen), False, or None: its last word was never answered."""

    def __init__(self, users):
        self.items = {user: {} for user in users}
        self.forgotten = {user: False for user in users}  # and nothing since

    def said(self, user, items, word, sure):
        for item in items:
            self.items[user][item] = word if sure else None if self.items[user].get(item, False) is not word else word
        if word:
            self.forgotten[user] = False

    def forgot(self, user, sure):
        if sure:
            self.items[user] = dict.fromkeys(self.items[user], False)
            self.forgotten[user] = True
            return
        for item, word in self.items[user].items():
            self.items[user][item] = None if word is not False else False

    def problems(self, ask):
        """ask(user, items) tells which of them were seen. Returns what contradicts the ledger."""
        out = []
        for user, words in self.items.items():
            seen = dict(zip(words, ask(user, list(words)) if words else []))
            out += [(user, item, word) for item, word in words.items() if word is not None and seen[item] != word]
        return out
