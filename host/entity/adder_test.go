package entity

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// adder is a guest that handles the frames of the contract without an SDK. The
// state of an entity is a sum. Commands: "add N" emits one event, "twice N"
// emits two, "note" emits none, "checkpoint" emits the checkpoint of a run,
// "refuse N" emits an event and then rejects, "deny" rejects immediately, and
// "trap" traps. The reply, and the query "sum", are the sum in decimal.
type adder struct {
	w    *world
	rev  uint64 // revision of the activation that opened the instance; activations of the same module share it
	sums map[uint64]int64
	most int
	fuel int64
	dead bool
	away bool // a call of this guest is running elsewhere
}

var errTrap = errors.New("unreachable")

func (g *adder) Load(_ uint32, h uint64, frames []byte) (bool, error) {
	if g.dead {
		panic("a dead guest was called")
	}
	if _, ok := g.sums[h]; ok {
		panic("a handle was loaded twice")
	}
	var req abi.Request
	if err := abi.ParseRequest(&req, frames); err != nil {
		return false, err
	}
	if g.w.poison != "" && string(req.EntityID) == g.w.poison {
		g.dead = true
		return false, errTrap
	}
	if req.Snapshot == nil {
		g.sums[h] = 0
		return true, nil
	}
	n := g.w.rnd.IntN(12)
	if g.w.prompt {
		n = g.w.bad
	}
	switch n {
	case 0:
		return false, nil
	case 1:
		g.dead = true
		return false, errTrap
	}
	sum, err := strconv.ParseInt(string(req.Snapshot), 10, 64)
	if want := g.w.sumAt(sharding.EntityID{Type: "tally", ID: string(req.EntityID)}, journal.Sequence(req.Sequence)); err != nil || sum != want {
		g.w.problem("a snapshot of %s at %d has %q, the log %d", req.EntityID, req.Sequence, req.Snapshot, want)
	}
	g.sums[h] = sum
	return true, nil
}

func (g *adder) Snapshot(h uint64) ([]byte, error) {
	if g.w.noSnapshot || !g.w.prompt && g.w.rnd.IntN(40) == 0 {
		g.dead = true
		return nil, errTrap
	}
	if g.w.tooLarge > 0 && g.sums[h] >= g.w.tooLarge {
		return nil, fmt.Errorf("%w: 3 MiB", abi.ErrOverLimit)
	}
	return strconv.AppendInt(nil, g.sums[h], 10), nil
}

func (g *adder) evolve(h uint64, kind, payload string) {
	if kind == abi.RunEnded {
		return
	}
	n, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || kind != "added" && kind != abi.RunCheckpoint {
		panic("a damaged event reached the guest")
	}
	if kind == abi.RunCheckpoint {
		g.sums[h] = 0
	}
	g.sums[h] += n
}

func (g *adder) Apply(h uint64, frames []byte) error {
	r := abi.NewReader(frames)
	for {
		f, ok, err := r.Next()
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		ev, err := abi.DecodeInputEvent(f.Body)
		if err != nil {
			return err
		}
		g.evolve(h, string(ev.Type), string(ev.Payload))
	}
}

// bound checks that the guest runs under the revision in the shard's log, or
// under a revision with the same module. An older or newer module must not
// run.
func (g *adder) bound() {
	if g.rev/2 != g.w.revision/2 {
		g.w.problem("a guest of revision %d ran, the log is at %d", g.rev, g.w.revision)
	}
}

func (g *adder) Handle(h uint64, frames []byte, _ Env) ([]byte, error) {
	g.bound()
	var req abi.Request
	if err := abi.ParseRequest(&req, frames); err != nil {
		return nil, err
	}
	g.w.who = bytes.Clone(req.Principal)
	g.fuel = int64(binary.LittleEndian.Uint16(append([]byte(req.CommandID), 'x', 'y'))) + 1
	var out []byte
	emit := func(times int) {
		if g.w.transient && string(req.Name) != "emit" {
			n, _ := strconv.ParseInt(string(req.Payload), 10, 64)
			g.sums[h] += n * int64(times)
			return
		}
		if g.w.durable {
			n, _ := strconv.ParseInt(string(req.Payload), 10, 64)
			g.sums[h] += n * int64(times)
			out = abi.AppendState(out, strconv.AppendInt(nil, g.sums[h], 10))
			return
		}
		for range times {
			out = abi.AppendEvent(out, "added", req.Payload)
			g.evolve(h, "added", string(req.Payload))
		}
	}
	switch string(req.Name) {
	case "add", "tick", "emit":
		emit(1)
	case "set", "setnote":
		due := g.w.now.Add(time.Duration(g.w.rnd.IntN(30)-5) * time.Millisecond).UnixNano()
		name := []byte{'t', '0' + req.Payload[0]%3}
		out = abi.AppendSetTimer(out, abi.Timer{Name: name, Due: due, Command: []byte(g.w.tick()), Payload: req.Payload})
		if string(req.Name) == "set" {
			emit(1)
		}
	case "schedule":
		for _, s := range g.w.schedules {
			out = abi.AppendSetSchedule(out, s)
		}
	case "every":
		n := req.Payload[0] % 3
		out = abi.AppendSetSchedule(out, abi.Timer{Name: []byte{'t', '0' + n}, Expression: []byte("@every 100ms"), Missed: abi.Missed(g.w.rnd.IntN(3)), Command: []byte(g.w.tick()), Payload: req.Payload})
	case "alarm":
		out = abi.AppendSetTimer(out, *g.w.alarm)
	case "delete":
		emit(1)
		out = abi.AppendDelete(out)
	case "cancel":
		out = abi.AppendCancelTimer(out, []byte{'t', '0' + req.Payload[0]%3})
		emit(1)
	case "twice":
		emit(2)
	case "note":
	case "checkpoint":
		out = abi.AppendEvent(out, abi.RunCheckpoint, strconv.AppendInt(nil, g.sums[h], 10))
	case commandEnd:
		if g.w.refusesEnd {
			return abi.AppendReject(nil, "denied", ""), nil
		}
		out = abi.AppendEvent(out, abi.RunEnded, req.Payload)
		if req.Source.Kind == abi.SourceEntity {
			break // in the world, all messages that a delivery causes are its answer
		}
		out = abi.AppendSend(out, abi.Send{EntityType: []byte("tally"), EntityID: []byte("parent"), Command: []byte("note"), Payload: []byte("1")})
	case "raw":
		g.evolve(h, "added", string(req.Payload))
		return g.w.raw, nil
	case "large":
		out = g.large(out, h)
	case "send", "ask":
		out = g.w.answerWithMessages(out, &req)
		emit(1)
	case "heard", "unheard":
		req.Payload = []byte("1")
		emit(1)
	case "refuse":
		emit(1)
		return abi.AppendReject(out, "refused", strconv.FormatInt(g.sums[h], 10)), nil
	case "deny":
		return abi.AppendReject(nil, "denied", strconv.FormatInt(g.sums[h], 10)), nil
	default:
		emit(1)
		g.dead = true
		return nil, errTrap
	}
	return abi.AppendReply(out, strconv.AppendInt(nil, g.sums[h], 10)), nil
}

func (g *adder) Query(h uint64, frames []byte, _ Env) ([]byte, error) {
	g.bound()
	var req abi.Request
	if err := abi.ParseRequest(&req, frames); err != nil {
		return nil, err
	}
	g.w.who = bytes.Clone(req.Principal)
	if string(req.Name) == "raw" {
		return g.w.raw, nil
	}
	return abi.AppendReply(nil, strconv.AppendInt(nil, g.sums[h], 10)), nil
}

func (g *adder) Drop(h uint64) error {
	if g.away {
		panic("a guest was called during a visit")
	}
	if _, ok := g.sums[h]; !ok {
		panic("a handle was dropped that is not loaded")
	}
	delete(g.sums, h)
	return nil
}

// Fuel is a function of the state, so that recorded fuel can be checked.
func (g *adder) Fuel() int64           { return g.fuel }
func (*adder) About(sharding.EntityID) {}
func (g *adder) Interrupt()            {}

// MemoryBytes never decreases, like the memory of a real guest.
func (g *adder) MemoryBytes() int64 {
	g.most = max(g.most, len(g.sums))
	return int64(g.most)
}

func (g *adder) Close() error {
	if g.away {
		panic("a guest was closed during a visit")
	}
	g.w.open--
	g.dead = true
	return nil
}

// evolve applies an event to a sum.
func evolve(sum int64, ev journal.Event) int64 {
	n, _ := strconv.ParseInt(string(ev.Payload), 10, 64)
	if manifest.StateEventVersion(ev.Type) > 0 || ev.Type == abi.RunCheckpoint {
		return n
	}
	return sum + n
}
