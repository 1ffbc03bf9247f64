// Package election decides when replicas without a leader ask for votes.
//
// Problem: after a node fails, hundreds of groups need a new leader. Raft's
// election timeout lasts a second or more, and simultaneous candidates split
// the vote.
//
// Approach: a replica that knows its leader is gone does not wait for the
// election timeout. The alive voters take turns, and the order rotates from
// group to group, so that usually one voter at a time campaigns and the
// leaderships spread over the nodes. Each voter tries a few times and then
// waits for the election timeout. Campaigns use raft's pre-vote, so a replica
// that is wrong about its leader does no harm.
//
// No voter knows whose log is the most advanced. A candidate whose log lacks
// entries cannot win; a voter that receives its request and has those entries
// campaigns next.
//
// The package counts ticks, reads no clock and starts no goroutine.
package election

import "slices"

const (
	maxCampaigns = 4
	// rankDelay ticks lie between the turns of two voters, and retryDelay ticks
	// between the attempts of one voter. Nodes notice a failure at slightly
	// different times, and reject vote requests until they have noticed it.
	rankDelay  = 2
	retryDelay = 3
)

// Replica is a replica that may campaign.
type Replica interface {
	// Candidacy returns the replica's own candidacy, always the same.
	Candidacy() *Candidacy
	// HasLeader reports whether a leader is known, which ends the candidacy.
	HasLeader() bool
	// HasNewTerm reports whether the replica's term has changed since its last
	// turn, because it voted.
	HasNewTerm() bool
	// IsCandidate reports whether the replica has raised the term and waits for
	// votes.
	IsCandidate() bool
	// HasFailed reports whether the replica has failed and must not campaign.
	HasFailed() bool
	// HasQuorum reports whether enough voters are alive.
	HasQuorum() bool
	// Rank returns the replica's rank among the alive voters, from 0.
	Rank() uint64
}

// Candidacy is the state of a leaderless replica that is to campaign.
type Candidacy struct {
	active    bool
	at        uint64
	campaigns int // number of attempts so far
	// prompt means that all voters learn of the failure at almost the same moment,
	// so the first voter in turn campaigns at once, and retries soon.
	prompt bool
}

// IsActive reports whether the replica is to campaign.
func (k *Candidacy) IsActive() bool { return k.active }

// End ends the candidacy.
func (k *Candidacy) End() { k.active = false }

// OnVoteRequest handles a vote request from another replica. A replica that is
// to campaign waits for the outcome, unless the other replica cannot win
// because its log lacks entries of this replica (ahead). OnVoteRequest reports
// whether the replica should campaign now, see List.RunDue.
func (k *Candidacy) OnVoteRequest(now uint64, ahead bool) (next bool) {
	switch {
	case !k.active:
	case ahead && k.prompt && k.campaigns == 0:
		k.at = now
		return true
	case ahead:
		k.at = min(k.at, now+1)
	default:
		k.at = max(k.at, now+retryDelay)
	}
	return false
}

// List holds the replicas that are to campaign. It bounds the campaigns per
// tick so that their messages and votes fit into the tick.
type List struct {
	campaign  func(Replica)
	replicas  []Replica
	remaining int // campaigns left in this tick
}

// NewList returns an empty list. stand makes a replica start a campaign.
func NewList(stand func(Replica)) *List { return &List{campaign: stand} }

// Len returns the number of replicas in the list.
func (l *List) Len() int { return len(l.replicas) }

// Schedule schedules a campaign of the replica.
func (l *List) Schedule(r Replica, now uint64) {
	k := r.Candidacy()
	k.campaigns, k.at, k.prompt = 0, now+1+rankDelay*r.Rank(), false
	if !k.active {
		k.active = true
		l.replicas = append(l.replicas, r)
	}
}

// Expedite is called after Schedule if the process of a node has ended, which all its
// peers see at once: the first replica in turn campaigns now, and the others
// keep their turns.
func (l *List) Expedite(now uint64) {
	for _, r := range l.replicas {
		k := r.Candidacy()
		if k.campaigns > 0 || k.at <= now {
			continue
		}
		k.prompt = true
		if k.at == now+1 {
			k.at = now
		}
	}
	l.run(now)
}

// RunDue runs the campaigns that OnVoteRequest made due.
func (l *List) RunDue(now uint64) { l.run(now) }

// Remove removes a replica.
func (l *List) Remove(r Replica) {
	l.replicas = slices.DeleteFunc(l.replicas, func(o Replica) bool { return o == r })
}

// Tick starts a tick with at most the given number of campaigns, and runs the
// campaigns that are due.
func (l *List) Tick(now uint64, most int) {
	l.remaining = most
	l.run(now)
}

func (l *List) run(now uint64) {
	kept := l.replicas[:0]
	for _, r := range l.replicas {
		k := r.Candidacy()
		if !k.active {
			continue // the candidacy has ended
		}
		if k.at > now || l.remaining == 0 && !r.HasLeader() {
			kept = append(kept, r)
			continue
		}
		if r.HasLeader() {
			k.active = false
			continue
		}
		if r.HasNewTerm() || k.prompt && k.campaigns == 1 && r.IsCandidate() {
			// The replica has just voted or may win. It campaigns again if the
			// election fails.
			k.at, k.prompt = now+retryDelay, false
			kept = append(kept, r)
			continue
		}
		l.remaining--
		l.campaign(r)
		if r.HasFailed() {
			continue
		}
		k.campaigns++
		if k.at = now + retryDelay + uint64(k.campaigns) + r.Rank(); k.prompt && k.campaigns == 1 {
			k.at = now + 1
		}
		if k.campaigns >= maxCampaigns || !r.HasQuorum() {
			k.active = false
			continue
		}
		kept = append(kept, r)
	}
	clear(l.replicas[len(kept):])
	l.replicas = kept
}
