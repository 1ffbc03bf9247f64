package election_test

import (
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/election"
)

// voter is a replica that wins if its votes are granted.
type voter struct {
	candidacy                        election.Candidacy
	turn                             uint64
	led, voted, elects, failed, mute bool
	stood                            []uint64 // ticks at which the voter campaigned
}

func (v *voter) Candidacy() *election.Candidacy { return &v.candidacy }
func (v *voter) HasLeader() bool                { return v.led }
func (v *voter) HasNewTerm() bool               { return v.voted }
func (v *voter) IsCandidate() bool              { return v.elects }
func (v *voter) HasFailed() bool                { return v.failed }
func (v *voter) HasQuorum() bool                { return !v.mute }
func (v *voter) Rank() uint64                   { return v.turn }

// clock is a list and its current tick.
type clock struct {
	list *election.List
	now  uint64
	most int
}

func newClock() *clock {
	c := &clock{now: 100, most: 64}
	c.list = election.NewList(c.stand)
	return c
}

func (c *clock) stand(r election.Replica) {
	v := r.(*voter)
	v.stood = append(v.stood, c.now)
}

func (c *clock) ticks(n int) {
	for range n {
		c.now++
		c.list.Tick(c.now, c.most)
	}
}

func same(t *testing.T, what string, got []uint64, want ...uint64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s stood at %v, wanted %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s stood at %v, wanted %v", what, got, want)
		}
	}
}

// TestVotersCampaignInTurn: the voters campaign in turn and, after some
// attempts, wait for the election timeout.
func TestVotersCampaignInTurn(t *testing.T) {
	c := newClock()
	first, second, third := &voter{}, &voter{turn: 1}, &voter{turn: 2}
	for _, v := range []*voter{first, second, third} {
		c.list.Schedule(v, c.now)
	}
	c.ticks(40)
	same(t, "the first", first.stood, 101, 105, 110, 116)
	same(t, "the second", second.stood, 103, 108, 114, 121)
	same(t, "the third", third.stood, 105, 111, 118, 126)
	if c.list.Len() != 0 || first.candidacy.IsActive() {
		t.Error("a candidacy has no end")
	}
}

// TestCandidacyEndsOnceALeaderIsKnown: a candidacy ends once a leader is known. It
// also ends if the quorum is lost, if the replica fails, and if it is ended
// explicitly.
func TestCandidacyEndsOnceALeaderIsKnown(t *testing.T) {
	c := newClock()
	led, mute, failed, stopped := &voter{led: true}, &voter{mute: true}, &voter{failed: true}, &voter{}
	for _, v := range []*voter{led, mute, failed, stopped} {
		c.list.Schedule(v, c.now)
	}
	stopped.candidacy.End()
	c.ticks(40)
	same(t, "who is led", led.stood)
	same(t, "who hears no quorum", mute.stood, 101)
	same(t, "who fails", failed.stood, 101)
	same(t, "who has stopped", stopped.stood)
}

// TestFirstVoterCampaignsAtOnceAfterProcessFailure: the first voter in turn
// campaigns before the next tick, and again at that tick if no vote arrived.
// The others keep their turns.
func TestFirstVoterCampaignsAtOnceAfterProcessFailure(t *testing.T) {
	c := newClock()
	c.ticks(1)
	first, second := &voter{}, &voter{turn: 1}
	c.list.Schedule(first, c.now)
	c.list.Schedule(second, c.now)
	c.list.Expedite(c.now)
	same(t, "the first", first.stood, 101)
	c.ticks(1)
	same(t, "the first", first.stood, 101, 102)
	c.ticks(2)
	same(t, "the second", second.stood, 104)
}

// TestCandidateWaitsForItsVotes: a candidate that has raised the term does
// not campaign again at the next tick.
func TestCandidateWaitsForItsVotes(t *testing.T) {
	c := newClock()
	c.ticks(1)
	v := &voter{}
	c.list.Schedule(v, c.now)
	c.list.Expedite(c.now)
	v.elects = true
	c.ticks(3)
	same(t, "who waits for votes", v.stood, 101)
	c.ticks(2)
	same(t, "who has waited", v.stood, 101, 105)
}

// TestVoterWithNewerLogCampaignsAfterVoteRequest: a voter with a newer log
// campaigns at once after a process failure, or at the next tick after a
// suspicion. A voter without a newer log gives the candidate time.
func TestVoterWithNewerLogCampaignsAfterVoteRequest(t *testing.T) {
	c := newClock()
	c.ticks(1)
	ended, silent, behind := &voter{turn: 1}, &voter{turn: 1}, &voter{}
	c.list.Schedule(ended, c.now)
	c.list.Expedite(c.now)
	c.list.Schedule(silent, c.now)
	c.list.Schedule(behind, c.now)
	if !ended.candidacy.OnVoteRequest(c.now, true) || silent.candidacy.OnVoteRequest(c.now, true) || behind.candidacy.OnVoteRequest(c.now, false) {
		t.Error("not who knows of an end and has more is to stand now")
	}
	c.list.RunDue(c.now)
	same(t, "who knows of an end", ended.stood, 101)
	c.ticks(1)
	same(t, "who knows of a silence", silent.stood, 102)
	c.ticks(2)
	same(t, "who has less", behind.stood, 104)
}

// TestCampaignsPerTickAreBounded: the bound holds no matter why the campaigns
// became due.
func TestCampaignsPerTickAreBounded(t *testing.T) {
	c := newClock()
	c.most = 3
	c.ticks(1)
	var all []*voter
	for range 8 {
		v := &voter{}
		all = append(all, v)
		c.list.Schedule(v, c.now)
	}
	c.list.Expedite(c.now)
	c.list.RunDue(c.now)
	stood := func() (n int) {
		for _, v := range all {
			n += len(v.stood)
			v.led = len(v.stood) > 0
		}
		return n
	}
	for want := 3; want < 8; want += 3 {
		if n := stood(); n != want {
			t.Fatalf("%d stand in the tick %d, wanted %d", n, c.now, want)
		}
		c.ticks(1)
	}
	if n := stood(); n != 8 {
		t.Errorf("%d of 8 stood", n)
	}
}

func TestRemove(t *testing.T) {
	c := newClock()
	v := &voter{}
	c.list.Schedule(v, c.now)
	c.list.Remove(v)
	c.ticks(40)
	same(t, "who was removed", v.stood)
}
