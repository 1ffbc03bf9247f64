package entity

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/hostd/hostd/abi"
)

type callKind uint8

const (
	callHandle callKind = iota
	callQuery
	callLoad // open the instance if it is new, load the entity if it is new, apply a chunk
	callSnapshot
)

// call is one visit to a guest. exec may run long, and then on a goroutine
// that no longer owns the lane: it touches nothing but the call and the guest.
type call struct {
	kind   callKind
	in     *instance
	guest  Guest // the instance's; opened by the visit if the instance has none
	entity *entity
	req    *Request // of handle and query
	env    Env
	hash   uint64 // of the command
	frames []byte
	chunk  *loadChunk
	begin  []byte // frames of hostd_load; empty when the entity is loaded
	again  bool   // the entity is loaded, and begins anew
	handle uint64

	fuel uint64 // that handle or query has cost
	out  []byte // valid until the guest's next call
	err  error

	// long gives the lane away from the visit with this mark.
	long func()
	mark uint64

	// state is 0 when no visit is under way, an odd number of its own while
	// one is, and handed once the lane went on without it.
	state atomic.Uint64
}

// keepBytes bounds the buffer that is kept for the next visit.
const keepBytes = 64 << 10

const handed = ^uint64(0)

// runner visits guests. visit returns true when the call has been executed; a
// runner that returns false sends the call to core.returned later.
type runner interface{ visit(*call) bool }

var errRefusedLoad = errors.New("the guest refused to make an initial state")

// exec visits the guest, opening it first if the instance is new.
func (v *call) exec() {
	if v.guest == nil {
		if v.guest, v.err = v.in.pool.typ.Instantiate(context.Background()); v.err != nil {
			v.guest = nil
			return
		}
	}
	switch v.kind {
	case callHandle:
		v.out, v.err = v.guest.Handle(v.handle, v.frames, v.env)
		v.fuel = uint64(max(0, v.guest.Fuel()))
	case callQuery:
		v.out, v.err = v.guest.Query(v.handle, v.frames, v.env)
		v.fuel = uint64(max(0, v.guest.Fuel()))
	case callSnapshot:
		v.out, v.err = v.guest.Snapshot(v.handle)
	case callLoad:
		if v.again {
			if v.err = v.guest.Drop(v.handle); v.err != nil {
				return
			}
		}
		if len(v.begin) > 0 {
			var ok bool
			if ok, v.err = v.guest.Load(v.chunk.load.typ.Index, v.handle, v.begin); v.err == nil && !ok {
				v.err = errRefusedLoad
			}
		}
		if v.err == nil && len(v.chunk.frames) > 0 {
			v.err = v.guest.Apply(v.handle, v.chunk.frames)
		}
	}
}

// visit sends the lane's call to its guest and takes the outcome, unless the
// lane goes on without it.
func (c *core) visit(v *call) {
	v.in.busy = true
	v.guest = v.in.guest
	if c.runner.visit(v) {
		c.returned(v)
	} else {
		c.goOn()
	}
}

// goOn leaves the visit under way to itself; its outcome comes as an event.
func (c *core) goOn() {
	c.visits[c.call] = struct{}{}
	c.call = &call{}
}

// cameBack takes the outcome of a visit that the lane went on without.
func (c *core) cameBack(v *call) {
	e := v.entity
	delete(c.visits, v)
	c.returned(v)
	c.enqueue(e)
}

// returned takes the outcome of a visit. Meanwhile the entity may have left
// the instance, or the instance may have been given up.
func (c *core) returned(v *call) {
	in, e := v.in, v.entity
	in.busy = false
	if in.guest = v.guest; in.guest != nil {
		if n := in.guest.MemoryBytes(); n != in.bytes {
			in.bytes, in.capacity = n, in.resident
		}
	}
	stays := !in.dead && e.inst == in && uint64(e.handle) == v.handle
	if !stays && v.err != nil {
		c.closeInstance(in)
	}
	switch {
	case v.kind == callLoad:
		if stays && in.guest == nil {
			c.cannotOpen(e, v.err)
		} else if stays {
			c.chunkApplied(e, v)
		}
	case v.kind == callSnapshot:
		if stays {
			c.snapshotTaken(e, v)
		}
	case v.req == nil: // answered when the lane closed
	case !stays:
		c.requeue(v)
	case v.kind == callHandle:
		c.handled(e, v)
	default:
		c.queried(e, v)
	}
	v.guest, v.req, v.chunk, v.out, v.err, v.begin = nil, nil, nil, nil, nil, v.begin[:0]
	if cap(v.begin) > keepBytes {
		v.begin = nil
	}
	if in.dead {
		c.shut(in)
		return
	}
	for _, h := range in.leaving {
		if err := in.guest.Drop(uint64(h)); err != nil {
			c.closeInstance(in)
			return
		}
		in.free = append(in.free, h)
	}
	in.leaving = in.leaving[:0]
	blocked := in.blocked
	in.blocked = nil
	for _, b := range blocked {
		b.blocked = false
		c.enqueue(b)
	}
}

// requeue decides a request again whose entity left while the guest ran, or
// answers it if the shard is no longer led here.
func (c *core) requeue(v *call) {
	s := v.entity.shard
	if s.state != leading || !s.entities.has(v.entity) {
		c.settle(s, v.req, Result{Err: notLeader(s)})
		return
	}
	v.req.Again = true // others have had their turn since
	c.dispatch(s, v.req)
}

// handled takes what a guest answered to a command.
func (c *core) handled(e *entity, v *call) {
	err := v.err
	c.fuel = v.fuel
	e.inst.pool.tally(c, e.typ).add(v.fuel)
	c.heat.add(c.now.UnixNano(), e, v.fuel)
	if err == nil {
		if err = abi.ParseOutput(&c.output, v.out, e.typ.mode(), c.limits(e.typ)); err == nil && c.output.HasState && outputBytes(&c.output) > maxEntryBytes-recordRoom {
			err = errOutputTooLarge
		}
		if err == nil {
			err = c.schedule(&c.output, v.env.Now)
		}
		if err != nil {
			c.stats.BadOutputs++
		}
	}
	if err != nil {
		c.failed(e, v.req, err)
		return
	}
	c.outcome(e, v.req, v.env, v.hash)
}
