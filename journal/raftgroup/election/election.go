// Package election says when replicas that know no leader ask for votes.
//
// A replica that knows its leader is gone does not wait for raft's election
// timeout: it asks for votes soon. The voters that are heard take turns, in an
// order that differs from group to group, so that one of them is alone and the
// leaderships spread; each asks a few times before it leaves the matter
// to the election timeout. Votes are asked for as raft does, before the term is
// raised, so a replica that is wrong about its leader disturbs nobody.
//
// Whose log is furthest is known to nobody. Who asks while another one's log is
// further cannot win; the other one, which sees that, asks next.
//
// The package counts ticks, looks at no clock and starts no goroutine.
package election

import "slices"

const (
	attempts = 4
	// otherTurn lies between two voters' turns and retryAfter between the
	// attempts of one, in ticks. The others learn of the silence a little earlier
	// or later, and until then they refuse.
	otherTurn  = 2
	retryAfter = 3
)

// Replica is one that may stand for election.
type Replica interface {
	// Candidacy is the replica's own, always the same.
	Candidacy() *Candidacy
	// Led says that a leader is known: there is nothing to stand for.
	Led() bool
	// Voted says that the replica has voted since its last turn.
	Voted() bool
	// Elects says that the replica has raised the term and waits for votes.
	Elects() bool
	// Failed says that the replica does nothing any more.
	Failed() bool
	// HearsQuorum says whether enough voters are heard.
	HearsQuorum() bool
	// Turn is the replica's place among the voters that are heard, from 0.
	Turn() uint64
}

// Candidacy is a replica's without a leader, which is to stand at a tick.
type Candidacy struct {
	standing bool
	at       uint64
	stood    int // how often
	// prompt: the voters learn within a moment of each other that the leader is
	// gone, so who is first in turn stands at once, and asks again soon.
	prompt bool
}

// Standing says whether the replica is to stand.
func (k *Candidacy) Standing() bool { return k.standing }

// End ends the candidacy.
func (k *Candidacy) End() { k.standing = false }

// Asked follows a request for a vote: who stands too lets the other one have
// its time, unless that cannot win because entries are missing to it. It says
// whether the replica is to stand now, see List.Now.
func (k *Candidacy) Asked(now uint64, ahead bool) (next bool) {
	switch {
	case !k.standing:
	case ahead && k.prompt && k.stood == 0:
		k.at = now
		return true
	case ahead:
		k.at = min(k.at, now+1)
	default:
		k.at = max(k.at, now+retryAfter)
	}
	return false
}

// List has the replicas that stand for election. In a tick so many of them
// stand that their messages and votes fit into it.
type List struct {
	stand    func(Replica)
	replicas []Replica
	left     int // that may stand in this tick
}

// NewList has nobody in it. stand lets a replica ask for votes.
func NewList(stand func(Replica)) *List { return &List{stand: stand} }

// Len is how many replicas are in the list.
func (l *List) Len() int { return len(l.replicas) }

// Call makes the replica stand for election soon.
func (l *List) Call(r Replica, now uint64) {
	k := r.Candidacy()
	k.stood, k.at, k.prompt = 0, now+1+otherTurn*r.Turn(), false
	if !k.standing {
		k.standing = true
		l.replicas = append(l.replicas, r)
	}
}

// Hasten is for replicas that were called because the process of a node has
// ended, which all its peers see at once: who is first in turn stands now. The
// others keep their turns.
func (l *List) Hasten(now uint64) {
	for _, r := range l.replicas {
		k := r.Candidacy()
		if k.stood > 0 || k.at <= now {
			continue
		}
		k.prompt = true
		if k.at == now+1 {
			k.at = now
		}
	}
	l.due(now)
}

// Now lets a replica stand that Asked says is to.
func (l *List) Now(now uint64) { l.due(now) }

// Remove forgets a replica.
func (l *List) Remove(r Replica) {
	l.replicas = slices.DeleteFunc(l.replicas, func(o Replica) bool { return o == r })
}

// Tick begins a tick, in which at most so many replicas stand, and lets those
// stand whose turn has come.
func (l *List) Tick(now uint64, most int) {
	l.left = most
	l.due(now)
}

func (l *List) due(now uint64) {
	kept := l.replicas[:0]
	for _, r := range l.replicas {
		k := r.Candidacy()
		if !k.standing {
			continue // it has stopped
		}
		if k.at > now || l.left == 0 && !r.Led() {
			kept = append(kept, r)
			continue
		}
		if r.Led() {
			k.standing = false
			continue
		}
		if r.Voted() || k.prompt && k.stood == 1 && r.Elects() {
			// It has just voted, or may win; it stands again if that leads to
			// nothing.
			k.at, k.prompt = now+retryAfter, false
			kept = append(kept, r)
			continue
		}
		l.left--
		l.stand(r)
		if r.Failed() {
			continue
		}
		k.stood++
		if k.at = now + retryAfter + uint64(k.stood) + r.Turn(); k.prompt && k.stood == 1 {
			k.at = now + 1
		}
		if k.stood >= attempts || !r.HearsQuorum() {
			k.standing = false
			continue
		}
		kept = append(kept, r)
	}
	clear(l.replicas[len(kept):])
	l.replicas = kept
}
