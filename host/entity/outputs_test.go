package entity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

func maxLevel() sharding.ClusterVersion { return sharding.MaxVersion }

// unstorable returns outputs that are well formed and cannot be stored, each
// with the error for callers.
func unstorable() map[string]struct {
	frames []byte
	want   error
	text   string
} {
	long, many := strings.Repeat("a", 300_000), func(frame []byte, n int) (out []byte) {
		for range n {
			out = append(out, frame...)
		}
		return out
	}
	event := abi.AppendEvent(nil, "added", []byte("1"))
	message := func(to, id string, payload int) []byte {
		return abi.AppendSend(nil, abi.Send{EntityType: []byte(to), EntityID: []byte(id), Command: []byte("add"), Payload: []byte(long[:payload])})
	}
	timer := abi.AppendSetTimer(nil, abi.Timer{Name: []byte("t"), Command: []byte("add")})
	schedule := func(expression, zone string) []byte {
		return abi.AppendSetSchedule(nil, abi.Timer{Name: []byte("t"), Expression: []byte(expression), Zone: []byte(zone), Command: []byte("add")})
	}
	return map[string]struct {
		frames []byte
		want   error
		text   string
	}{
		"output":            {many(abi.AppendEvent(nil, "added", []byte(long[:60_000])), 50), request.ErrOutputLimit, "output"},
		"reply":             {abi.AppendReply(nil, []byte(long)), request.ErrOutputLimit, "reply bytes: 300000, limit 262144"},
		"event":             {abi.AppendEvent(nil, "added", []byte(long[:70_000])), request.ErrOutputLimit, "event payload bytes: 70000, limit 65536"},
		"events":            {many(event, 129), request.ErrOutputLimit, "events of one command: 129, limit 128"},
		"bytes of events":   {many(abi.AppendEvent(nil, "added", []byte(long[:60_000])), 6), request.ErrOutputLimit, "event bytes of one command"},
		"event type":        {abi.AppendEvent(nil, long[:256], nil), request.ErrOutputLimit, "event type bytes: 256, limit 255"},
		"tag":               {abi.AppendTag(event, long[:256]), request.ErrOutputLimit, "tag bytes: 256, limit 255"},
		"tags":              {append(event[:len(event):len(event)], many(abi.AppendTag(nil, "a"), 17)...), request.ErrOutputLimit, "tags of one event: 17, limit 16"},
		"no tag":            {abi.AppendTag(event, ""), request.ErrOutputValue, "tag: is empty"},
		"code":              {abi.AppendReject(nil, long[:256], "no"), request.ErrOutputLimit, "code bytes: 256, limit 255"},
		"message":           {message("tally", "b", 70_000), request.ErrOutputLimit, "payload bytes: 70000, limit 65536"},
		"messages":          {many(message("tally", "b", 0), 129), request.ErrOutputLimit, "sends of one command: 129, limit 128"},
		"bytes of messages": {many(message("tally", "b", 60_000), 6), request.ErrOutputLimit, "send and timer bytes of one command"},
		"entity id":         {message("tally", long[:257], 0), request.ErrOutputLimit, "entity id bytes: 257, limit 256"},
		"no entity id":      {message("tally", "", 0), request.ErrOutputValue, "entity id: is empty"},
		"entity type":       {message("Tally", "b", 0), request.ErrOutputValue, "entity type"},
		"timers":            {many(timer, 129), request.ErrOutputLimit, "timers of one command: 129, limit 128"},
		"timer":             {abi.AppendCancelTimer(nil, long[:256]), request.ErrOutputLimit, "timer bytes: 256, limit 255"},
		"schedule":          {schedule("* * *", ""), request.ErrOutputValue, "schedule \"t\""},
		"time zone":         {schedule("@daily", "Mars/Olympus"), request.ErrOutputValue, "schedule \"t\""},
		"never":             {schedule("0 0 31 2 *", ""), request.ErrOutputValue, "never fires"},
	}
}

// TestUnstorableOutputRejectsCommand checks that an output over a limit,
// whose cause is often the caller's input, never counts as a fault of the
// entity and has no effect.
func TestUnstorableOutputRejectsCommand(t *testing.T) {
	for name, c := range unstorable() {
		w := quiet(t)
		w.core.opts.ClusterVersion, w.core.opts.QuarantineFor = maxLevel, time.Hour
		w.ask(request.Command, "add", "before")
		w.raw = c.frames
		for i := range 4 {
			if res := w.ask(request.Command, "raw", fmt.Sprint(name, i)); !errors.Is(res.Err, c.want) || !strings.Contains(res.Err.Error(), c.text) {
				t.Errorf("%s: %+v, want %q", name, res, c.text)
			}
		}
		if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "1" {
			t.Errorf("%s: the state is %s", name, res.Payload)
		}
		info := w.ask(request.Inspect, "", "").Info
		if info.Faults != 0 || w.core.stats.Faults != 0 || w.core.stats.Quarantines != 0 || len(w.log) != 1 {
			t.Errorf("%s: %+v, %d faults, %d records", name, info, w.core.stats.Faults, len(w.log))
		}
		if res := w.ask(request.Command, "add", "after"); res.Err != nil || res.Sequence != 2 {
			t.Errorf("%s: the next command: %+v", name, res)
		}
	}
}

// TestUnstorableOutputBelowItsClusterVersion checks that if the cluster
// version does not support the new error, callers get a guest fault, which
// still does not count as a fault of the entity.
func TestUnstorableOutputBelowItsClusterVersion(t *testing.T) {
	w := quiet(t)
	w.raw = abi.AppendReply(nil, make([]byte, 300_000))
	var fault *request.GuestFaultError
	if res := w.ask(request.Command, "raw", "a"); !errors.As(res.Err, &fault) || w.core.stats.Faults != 0 {
		t.Errorf("%+v, %d faults", res, w.core.stats.Faults)
	}
}

// TestLongQueryReplyIsRejected checks that a query whose reply is too long is
// rejected, and that the instance and its state stay in memory.
func TestLongQueryReplyIsRejected(t *testing.T) {
	w := quiet(t)
	w.core.opts.ClusterVersion = maxLevel
	w.ask(request.Command, "add", "a")
	w.raw = abi.AppendReply(nil, make([]byte, 300_000))
	loads := w.core.stats.Loads
	for range 4 {
		if res := w.ask(request.Query, "raw", ""); !errors.Is(res.Err, request.ErrOutputLimit) {
			t.Fatalf("%+v", res)
		}
	}
	if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "1" || w.core.stats.Loads != loads || w.core.stats.Faults != 0 {
		t.Errorf("%+v, %d loads, %d faults", res, w.core.stats.Loads-loads, w.core.stats.Faults)
	}
}

// TestUnstorableOutputRejectsMessage checks that the message's number is used
// up and that the message becomes a dead letter with the reason.
func TestUnstorableOutputRejectsMessage(t *testing.T) {
	w := quiet(t)
	w.core.opts.ClusterVersion = maxLevel
	w.raw = abi.AppendReply(nil, make([]byte, 300_000))
	from, to := sharding.EntityID{Type: "any", ID: "a"}, sharding.EntityID{Type: "tally", ID: "y"}
	w.messages.all[pair{from, to}] = []journal.Message{{Source: from, Destination: to, Number: 1, Command: "raw", Payload: []byte("1")}}
	deliver := &request.Request{Kind: request.Deliver, Entity: to, Name: "raw", Payload: []byte("1"), ServerID: true, Shard: worldShard,
		ExpectedSequence: request.NoExpectation, Delivery: &request.Delivery{Source: from, Number: 1}}
	got := &asked{}
	deliver.ID, deliver.Done = request.SendCommand(deliver.Delivery.Source, 1), got
	w.core.submit(w.now, []*request.Request{deliver})
	w.settleDown()
	if got.got == nil || got.got.Err != nil || len(w.messages.deadLetters) != 1 || w.core.stats.Faults != 0 {
		t.Fatalf("%+v, %d dead letters, %d faults", got.got, len(w.messages.deadLetters), w.core.stats.Faults)
	}
	for i := range w.log {
		if section := w.log[i].Section(journal.SectionRefusal); section != nil {
			if why, err := journal.DecodeRefusal(section); err != nil || string(why.Code) != request.CodeOutOfRange {
				t.Errorf("%s: %s, %v", why.Code, why.Message, err)
			}
		}
	}
}

// TestStateTooLargeForSnapshotAffectsOnlyItsEntity checks that the entity
// reports the reason, and that other entities of its type still get snapshots.
func TestStateTooLargeForSnapshotAffectsOnlyItsEntity(t *testing.T) {
	w := quiet(t)
	w.tooLarge = 100
	w.serve(w.newest)
	fill := func(id string, n int) {
		for i := range n {
			if res := w.askOf(id, request.Command, "add", fmt.Sprint(id, i)); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
	}
	loads := w.core.stats.Loads
	fill("large", 130)
	fill("other", 50)
	if len(w.snaps["other"]) == 0 {
		t.Error("the other entity has no snapshot")
	}
	large := w.askOf("large", request.Inspect, "", "").Info
	if !strings.Contains(large.LastErr, "no snapshot") || !large.Resident || w.core.stats.SnapshotsTooLarge != 1 || w.core.stats.Faults != 0 || w.core.stats.Loads != loads+2 {
		t.Errorf("%+v, %d too large, %d faults", large, w.core.stats.SnapshotsTooLarge, w.core.stats.Faults)
	}
	w.tooLarge, w.now = 0, w.now.Add(noSnapshotsFor+time.Second)
	before := len(w.snaps["large"])
	fill("large2", 1)
	w.askOf("large", request.Command, "add", "last")
	if large = w.askOf("large", request.Inspect, "", "").Info; len(w.snaps["large"]) == before || large.LastErr != "" {
		t.Errorf("once it fits: %d snapshots, %q", len(w.snaps["large"])-before, large.LastErr)
	}
}
