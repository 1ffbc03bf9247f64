// Package election decides when replicas without a leader ask for votes.
//
// Problem: after a node fails, hundreds of groups need a new leader. Raft's
// election timeout takes a second or more, and simultaneous candidates split
// the vote.
//
// Approach: a replica that knows its leader is gone does not wait for the
// election timeout. The alive voters take turns, and the order rotates from
// group to group, so that usually one voter at a time campaigns and the
// leaderships spread over the nodes. Each voter tries a few times before it
// leaves the election to the timeout. Campaigns use raft's pre-vote, so a
// replica that is wrong about its leader disturbs nobody.
//
// No voter knows whose log is the most advanced. A candidate whose log lacks
// entries cannot win; a voter that receives its request and has those entries
// campaigns next.
//
// The package counts ticks, reads no clock and starts no goroutine.
package election

import "slices"

const (
	attempts = 4
	// otherTurn ticks lie between the turns of two voters, and retryAfter ticks
	// between the attempts of one. Nodes notice a failure at slightly different
	// times, and reject votes until they have.
	otherTurn  = 2
	retryAfter = 3
)

// Replica is a replica that may campaign.
type Replica interface {
	// Candidacy returns the replica's own candidacy, always the same.
	Candidacy() *Candidacy
	// Led reports whether a leader is known, which ends the candidacy.
	Led() bool
	// Voted reports whether the replica has voted since its last turn.
	Voted() bool
	// Elects reports whether the replica has raised the term and waits for
	// votes.
	Elects() bool
	// Failed reports whether the replica no longer does anything.
	Failed() bool
	// HearsQuorum reports whether enough voters are alive.
	HearsQuorum() bool
	// Turn returns the replica's rank among the alive voters, from 0.
	Turn() uint64
}

// Candidacy is the state of a leaderless replica that is to campaign.
type Candidacy struct {
	standing bool
	at       uint64
	stood    int // number of campaigns
	// prompt: all voters learn of the failure at almost the same moment, so the
	// first in turn campaigns at once, and retries soon.
	prompt bool
}

// Standing reports whether the replica is to campaign.
func (k *Candidacy) Standing() bool { return k.standing }

// End ends the candidacy.
func (k *Candidacy) End() { k.standing = false }

// Asked handles a vote request from another replica. A replica that is to
// campaign gives the other one time, unless the other one cannot win because
// its log lacks entries (ahead). It reports whether the replica should campaign
// now, see List.Now.
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

// List holds the replicas that are to campaign. It bounds the campaigns per
// tick so that their messages and votes fit into the tick.
type List struct {
	stand    func(Replica)
	replicas []Replica
	left     int // campaigns left in this tick
}

// NewList returns an empty list. stand makes a replica ask for votes.
func NewList(stand func(Replica)) *List { return &List{stand: stand} }

// Len returns the number of replicas in the list.
func (l *List) Len() int { return len(l.replicas) }

// Call schedules a campaign of the replica.
func (l *List) Call(r Replica, now uint64) {
	k := r.Candidacy()
	k.stood, k.at, k.prompt = 0, now+1+otherTurn*r.Turn(), false
	if !k.standing {
		k.standing = true
		l.replicas = append(l.replicas, r)
	}
}

// Hasten is called after Call if the process of a node has ended, which all its
// peers see at once: the first replica in turn campaigns now, and the others
// keep their turns.
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

// Now runs the campaigns that Asked made due.
func (l *List) Now(now uint64) { l.due(now) }

// Remove removes a replica.
func (l *List) Remove(r Replica) {
	l.replicas = slices.DeleteFunc(l.replicas, func(o Replica) bool { return o == r })
}

// Tick starts a tick with at most the given number of campaigns, and runs those
// that are due.
func (l *List) Tick(now uint64, most int) {
	l.left = most
	l.due(now)
}

func (l *List) due(now uint64) {
	kept := l.replicas[:0]
	for _, r := range l.replicas {
		k := r.Candidacy()
		if !k.standing {
			continue // the candidacy has ended
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
			// The replica has just voted or may win. It campaigns again if the
			// election fails.
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
