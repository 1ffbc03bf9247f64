package entity

import (
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// sentTo delivers a message of entity s to entity x.
func (w *world) sentTo(name string, d request.Delivery) request.Result {
	w.t.Helper()
	between := pair{sharding.EntityID{Type: "tally", ID: "s"}, sharding.EntityID{Type: "tally", ID: "x"}}
	d.Source, d.Number = between.from, uint64(len(w.messages.all[between])+1)
	d.After = d.Number - 1
	w.messages.all[between] = append(w.messages.all[between], journal.Message{Source: between.from, Destination: between.to, Number: d.Number, Command: name, Payload: []byte("1")})
	return w.submit(&request.Request{
		Kind: request.Deliver, Entity: between.to, Name: name, Payload: []byte("1"), ID: request.SendCommand(between.from, d.Number), ServerID: true, Delivery: &d,
	})
}

// TestMessageChainEndsAfterMaxHops checks that 64 messages in a chain are
// executed, each with its hop count, and that the next message becomes a dead
// letter, whether or not the source wants an answer. Below the cluster
// version that has hop counts, hops are not counted.
func TestMessageChainEndsAfterMaxHops(t *testing.T) {
	for _, version := range []sharding.ClusterVersion{sharding.Version1, sharding.Version2} {
		w := quiet(t)
		w.core.opts.ClusterVersion = func() sharding.ClusterVersion { return version }
		w.core.opts.EntitySends, w.core.opts.ShardSends = 1000, 1000
		for hops := uint8(0); hops <= journal.MaxHops+1; hops++ {
			dead, answered := len(w.messages.deadLetters), len(w.messages.outbox)
			d := request.Delivery{Hops: hops}
			if hops == journal.MaxHops+1 {
				d.OnReply, d.OnReject = "heard", "unheard"
			}
			if res := w.sentTo("send", d); res.Err != nil {
				t.Fatal(res.Err)
			}
			if hops >= journal.MaxHops && version >= sharding.VersionHops {
				if len(w.messages.deadLetters) != dead+1 || len(w.messages.outbox) != answered {
					t.Errorf("%d hops: %d dead letters, %d sends more", hops, len(w.messages.deadLetters)-dead, len(w.messages.outbox)-answered)
				}
				continue
			}
			if len(w.messages.deadLetters) != dead || len(w.messages.outbox) == answered {
				t.Errorf("%d hops at level %d: %d dead letters, %d sends more", hops, version, len(w.messages.deadLetters)-dead, len(w.messages.outbox)-answered)
			}
			src, err := journal.DecodeMessageSource(w.log[len(w.log)-1].Section(journal.SectionSource))
			want := hops + 1
			if version < sharding.VersionHops {
				want = 0
			}
			if err != nil || src.Hops != want || src.Number != uint64(hops)+1 {
				t.Errorf("%d hops at level %d: the record is of send %d and says %d hops, %v", hops, version, src.Number, src.Hops, err)
			}
		}
		for _, p := range w.problems {
			if !strings.Contains(p, "heard") {
				t.Error(p)
			}
		}
	}
}

// TestDeliveryIsNotRecordedBeforeItsSend checks that neither the effects of a
// message nor later records get an earlier time than the message, if that
// time is at most a minute ahead of this node's clock. A time that is further
// ahead is ignored and counted.
func TestDeliveryIsNotRecordedBeforeItsSend(t *testing.T) {
	w := quiet(t)
	w.ask(request.Command, "add", "first")
	now := w.now.UnixNano()
	for _, tt := range []struct {
		offset time.Duration
		taken  bool
	}{{-time.Hour, false}, {aheadMost + 1, false}, {time.Second, true}, {aheadMost, true}} {
		was := w.core.shard(worldShard).clock
		ignored := w.core.stats.AheadOfUs
		if res := w.sentTo("add", request.Delivery{SentAt: now + int64(tt.offset)}); res.Err != nil {
			t.Fatal(res.Err)
		}
		want := was
		if tt.taken {
			want = now + int64(tt.offset)
		}
		if at := w.log[len(w.log)-1].RecordedAt; at != want {
			t.Errorf("a message from %v ahead is recorded %v ahead", tt.offset, time.Duration(at-now))
		}
		if n := w.core.stats.AheadOfUs - ignored; (n == 1) != (tt.offset > aheadMost) {
			t.Errorf("a message from %v ahead: %d are counted", tt.offset, n)
		}
	}
	if res := w.ask(request.Command, "add", "after"); res.Err != nil || w.log[len(w.log)-1].RecordedAt < now+int64(aheadMost) {
		t.Errorf("the next command: %v, at %d", res.Err, w.log[len(w.log)-1].RecordedAt-now)
	}
}

// TestLeaderClockIsLimitedByMedian checks that a leader whose clock is an hour
// ahead uses a time at most five seconds past the median, and that a leader
// uses its own clock if it is behind or if the median is unknown.
func TestLeaderClockIsLimitedByMedian(t *testing.T) {
	for _, tt := range []struct {
		offset time.Duration // offset of the median from this node's clock
		known  bool
		want   time.Duration // log clock minus this node's clock
	}{
		{-time.Hour, true, -time.Hour + clockMost}, {-clockMost - 1, true, -1}, {-clockMost, true, 0}, {-clockMost + 1, true, 0},
		{0, true, 0}, {time.Hour, true, 0}, {-time.Hour, false, 0},
	} {
		w := quiet(t)
		w.core.opts.Clocks = median{tt.offset, tt.known}
		if res := w.ask(request.Command, "add", "c"); res.Err != nil {
			t.Fatal(res.Err)
		}
		if at := time.Duration(w.log[0].RecordedAt - w.now.UnixNano()); at != tt.want {
			t.Errorf("the median is %v ahead, known %v: the record is %v ahead, want %v", tt.offset, tt.known, at, tt.want)
		}
	}
}

// median is the median of the nodes' clocks.
type median struct {
	offset time.Duration
	known  bool
}

func (m median) Median() (time.Duration, bool) { return m.offset, m.known }
