"""What several primaries have acknowledged, and what of it must be seen where they are united: docs/replicas.md, as a
program. Each node that leads begins a reign. An event knows all that its node had when it was recorded; of two that
know nothing of each other, the rejoin that brings the one to the other decides. Where that is not said, the word is
None: either answer is right."""
import itertools

NEVER = 1 << 62  # is durable there, as far as can be told
PERHAPS = NEVER + 1
NEAR_MS = 100  # events behind a forget are sent some milliseconds later


class Event:
    def __init__(self, play, user, item, at_ms, sure, past):
        self.play, self.user, self.item, self.at_ms, self.sure, self.past = play, user, item, at_ms, sure, past
        self.by_folder = False  # a forget that a tombstone brought: of a user who was not there it brought nothing

    def ends(self, play):
        """Whether this forget is of what was played there."""
        return play.play and not self.play and self.user == play.user and self.item in (None, play.item)


class Reign:
    def __init__(self, node, first, has=(), maybe=()):
        self.node, self.first = node, first
        self.base, self.base_maybe = set(has), set(maybe) - set(has)
        self.log = []  # of its own: (seqs of its feed behind which, and up to which, event)

    def state(self, seq=NEVER):
        """What it has, and what it may have, of its feed up to there."""
        has = self.base | {event for _, hi, event in self.log if hi <= seq}
        maybe = self.base_maybe | {event for lo, hi, event in self.log if lo < seq < hi}
        return has, maybe - has


class Branches:
    def __init__(self):
        self.reigns, self.verdicts = [], {}
        self.redone = set()  # (play, forget) that may have ended once more, though it was recorded behind that

    def begin(self, node, first, followed, common, more=()):
        """A node leads, that had all of another's feed up to `common`, and perhaps `more`."""
        before = [r for r in self.reigns if r.node == followed and r.first <= common]
        has, maybe = before[-1].state(common) if before else (set(), set())
        if before:  # a replica carries a forget out before its position moves, with the next play
            behind = sorted(((hi, e) for _, hi, e in before[-1].log if hi > common), key=lambda row: row[0])
            maybe |= {e for _, e in itertools.takewhile(lambda row: not row[1].play, behind)}
        self.reigns.append(Reign(node, first, has, maybe | set(more)))
        return self.reigns[-1]

    def go_on(self, reign, first):
        self.reigns.append(Reign(reign.node, first, *reign.state()))
        return self.reigns[-1]

    def record(self, reign, play, user, items, at_ms, seqs, sure):
        past = frozenset(reign.state()[0])
        lo, hi = seqs if sure else (seqs[0], NEVER)
        for item in items:
            reign.log.append((lo, hi, Event(play, user, item, at_ms, sure, past)))

    def unite(self, old, new, seqs, whole, by_feed, forgets):
        """What `old` alone had was brought to `new`: as a whole, or some of it. by_feed: its feed told what; forgets:
        whether its forgets spare what is newer there ("spare"), end that ("apply"), or were left in part ("leave")."""
        theirs, perhaps = new.state()
        ours, maybe = old.state()
        if forgets == "apply":
            self.redone |= {(b, a) for a in ours | maybe for b in theirs | perhaps if a.ends(b)}
        if not by_feed:  # a filter has no times: what was forgotten there since stays so, wherever the forget came from
            since = (theirs | perhaps) - (old.base & new.base)
            self.redone |= {(a, b) for a in (ours | maybe) - theirs for b in since if b.ends(a)}
        for a in (ours | maybe) - theirs:
            if not a.play and forgets != "spare":
                a.sure = False
            for b in (theirs | perhaps) - ours:
                if b.ends(a):
                    apart = b.at_ms - a.at_ms
                    unsure = abs(apart) < NEAR_MS or (apart > 0 and b.by_folder)
                    ended = None if unsure else True if apart > 0 else False if by_feed else None
                    self.decide(a, b, ended)
                elif a.ends(b):
                    self.decide(b, a, False if forgets == "spare" else None)
            new.log.append((seqs[0], seqs[1] if whole and a in ours else PERHAPS, a))
        for a in (ours | maybe) - theirs:
            a.by_folder = a.by_folder or not by_feed

    def decide(self, play, forget, ended):
        before = self.verdicts.setdefault((play, forget), ended)
        if before is not ended:
            self.verdicts[play, forget] = None

    def ended(self, play, forget):
        if (play, forget) in self.redone and play not in forget.past:
            return None
        return False if forget in play.past else True if play in forget.past else self.verdicts.get((play, forget))

    def word(self, reign, user, item):
        has, maybe = reign.state()
        plays = [e for e in has | maybe if e.play and (e.user, e.item) == (user, item)]
        forgets = [e for e in has | maybe if not e.play and e.user == user and e.item in (None, item)]
        if any(p.sure and p in has and all(self.ended(p, f) is False for f in forgets) for p in plays):
            return True
        if all(any(f.sure and f in has and self.ended(p, f) for f in forgets) for p in plays):
            return False
        return None
