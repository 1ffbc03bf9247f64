package entity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// The entities of a type that remembers them are in memory without being asked
// for. The leader of a shard reads their ids from what is stored, a window at a
// time, and starts them at a bounded rate, a few at a time, behind what callers
// ask for. An entity whose handler or caller has let it leave rests: its last
// record says so, and nobody starts it until its next command. One that left
// for another reason is started again; one that fails is tried again later.
//
//	known types --> reading ids --> ids of a window --+--> started --> in memory
//	                                left, not asked --+       |
//	                                held back  <--------------+ failed

const (
	// rememberedAtOnce bounds the entities of a lane that are being started:
	// half of its loaders are for callers.
	rememberedAtOnce = 4
	// rememberedWindow bounds the ids that are read at a time.
	rememberedWindow = 256
	// rememberedBurst bounds how many are started at a moment.
	rememberedBurst = 64
	// rememberedBack bounds the entities of a shard that failed and wait.
	rememberedBack = 4096
	// rememberRetry is how long one that failed waits; it doubles up to
	// rememberRetryMost.
	rememberRetry     = time.Second
	rememberRetryMost = 5 * time.Minute
	// crowdedFor is how long nothing is started when the lane's memory is full.
	crowdedFor = 10 * time.Second
)

// Living lists the entities of a type that exist and do not rest, by id, after
// the id given. It returns fewer than limit only at the end.
type Living interface {
	Living(ctx context.Context, shard sharding.ShardID, entityType, after string, limit int) ([]string, error)
}

// reminder is what a lane has to start again.
type reminder struct {
	types   []string // that remember their entities, when it was last looked
	shards  []*shard // with something to start
	scan    *livingScan
	flying  int // started, with no outcome yet
	allowed int // may be started now
	at      int64
	counted int64 // when allowed was brought up to date
}

// remembering is what a shard has to start again.
type remembering struct {
	listed bool     // in reminder.shards
	types  []string // to be read; of the first the ids after after
	after  string
	typ    string   // of page
	page   []string // read and not started
	again  []sharding.EntityID
	back   map[sharding.EntityID]heldBack
	backAt int64 // when the first of back may be tried
}

func (r *remembering) empty() bool {
	return len(r.types)+len(r.page)+len(r.again)+len(r.back) == 0
}

// livingScan asks for ids, and is the answer.
type livingScan struct {
	shard sharding.ShardID
	term  sharding.Term
	typ   string
	after string
	ids   []string
	err   error
}

// read runs on a loader's goroutine.
func (l *livingScan) read(ctx context.Context, living Living) {
	l.ids, l.err = living.Living(ctx, l.shard, l.typ, l.after, rememberedWindow)
}

// keeps reports that a type keeps its entities in memory.
func (c *core) keeps(entityType string) bool {
	if len(c.reminder.types) == 0 {
		return false
	}
	t := c.opts.Types.Lookup(entityType)
	return t != nil && t.Remember
}

// remembers reports that an entity which has left is to be in memory.
func (c *core) remembers(e *entity) bool {
	return (e.lives || e.id.ID == manifest.SingletonID) && !e.asleep && e.shard.state == leading && c.keeps(e.id.Type) && c.stays(e)
}

// stays reports that there is to be an entity whether it exists or not, or that
// it does.
func (c *core) stays(e *entity) bool {
	t := c.opts.Types.Lookup(e.id.Type)
	return e.lives || t != nil && t.Singleton && t.checkID(e.id) == nil
}

// recall has the entities of a shard read that this node begins to lead.
func (c *core) recall(s *shard) {
	c.learnTypes()
	c.recallTypes(s, c.reminder.types)
}

func (c *core) recallTypes(s *shard, types []string) {
	if len(types) > 0 && c.opts.Living != nil {
		s.memory.types = append(s.memory.types, types...)
		c.list(s)
	}
	if len(types) == 0 || c.opts.Singletons == nil {
		return
	}
	for _, id := range c.opts.Singletons(s.id) {
		if slices.Contains(types, id.Type) {
			s.memory.again = append(s.memory.again, id)
			c.list(s)
		}
	}
}

// learnTypes looks which types remember, and has the shards that are led read
// for those that are new.
func (c *core) learnTypes() {
	if c.opts.Remembered == nil {
		return
	}
	known := c.reminder.types
	c.reminder.types = c.opts.Remembered()
	fresh := slices.DeleteFunc(slices.Clone(c.reminder.types), func(t string) bool { return slices.Contains(known, t) })
	for _, s := range c.shards {
		if s.state == leading && len(fresh) > 0 {
			c.recallTypes(s, fresh)
		}
	}
}

func (c *core) list(s *shard) {
	if !s.memory.listed {
		s.memory.listed = true
		c.reminder.shards = append(c.reminder.shards, s)
	}
}

// startAgain has an entity started that is to be in memory and has left.
func (c *core) startAgain(e *entity) {
	e.lives = false // until it is loaded nothing is known of it
	e.shard.memory.again = append(e.shard.memory.again, e.id)
	c.list(e.shard)
}

// startRemembered starts what there is to start, as far as the rate allows.
func (c *core) startRemembered() {
	m := &c.reminder
	if m.at = 0; len(m.shards) == 0 {
		return
	}
	now := c.now.UnixNano()
	every := int64(time.Second) / int64(c.opts.RememberRate)
	if gained := (now - m.counted) / every; gained > 0 || m.counted == 0 {
		m.allowed, m.counted = int(min(rememberedBurst, int64(m.allowed)+gained)), now
	}
	if _, sum := c.usage(); sum > c.opts.LaneBytes/10*9 {
		m.at = now + int64(crowdedFor)
		return
	}
	for looked := 0; looked < len(m.shards) && m.flying < rememberedAtOnce; {
		s := m.shards[looked]
		if s.memory.empty() || s.state != leading {
			s.memory.listed = false
			m.shards = slices.Delete(m.shards, looked, looked+1)
			continue
		}
		if m.allowed == 0 {
			m.at = now + every
			break
		}
		id, ok := c.nextRemembered(s, now)
		if !ok {
			looked++
			continue
		}
		c.startOne(s, id)
	}
	for _, s := range m.shards {
		if at := s.memory.backAt; at > 0 && (m.at == 0 || at < m.at) {
			m.at = max(at, now+1)
		}
	}
}

// nextRemembered is an entity of the shard that may be started now. Where none
// is known it has more read.
func (c *core) nextRemembered(s *shard, now int64) (id sharding.EntityID, ok bool) {
	r := &s.memory
	switch {
	case len(s.deferred) > 0 || s.full(c):
		return id, false // callers first
	case r.backAt > 0 && r.backAt <= now:
		return r.retry(now)
	case len(r.again) > 0:
		id, r.again = r.again[0], r.again[1:]
		return id, true
	case len(r.page) > 0:
		id, r.page = sharding.EntityID{Type: r.typ, ID: r.page[0]}, r.page[1:]
		return id, true
	case len(r.types) > 0 && c.reminder.scan == nil:
		c.reminder.scan = &livingScan{shard: s.id, term: s.term, typ: r.types[0], after: r.after}
		c.loader.living(c.reminder.scan)
	}
	return id, false
}

// retry takes the first of those that were held back. Its number of failures
// stays until it is started.
func (r *remembering) retry(now int64) (id sharding.EntityID, ok bool) {
	r.backAt = 0
	for e, b := range r.back {
		switch {
		case !ok && b.until <= now:
			id, ok = e, true
		case r.backAt == 0 || b.until < r.backAt:
			r.backAt = b.until
		}
	}
	if ok {
		r.back[id] = heldBack{until: now + int64(rememberRetryMost), times: r.back[id].times}
	}
	return id, ok
}

// livingFound takes the ids that were read.
func (c *core) livingFound(scan *livingScan) {
	c.reminder.scan = nil
	s := c.shards[scan.shard]
	if s == nil || s.state != leading || s.term != scan.term {
		return
	}
	r := &s.memory
	if scan.err != nil {
		c.opts.Logger.Error("remembered entities cannot be read", "shard_id", s.id, "entity_type", scan.typ, "error", scan.err)
		r.hold(sharding.EntityID{Type: scan.typ}, c.now.UnixNano()) // the whole type is tried again
		r.types, r.after = r.types[1:], ""
		return
	}
	r.typ, r.page = scan.typ, scan.ids
	if len(scan.ids) == rememberedWindow {
		r.after = scan.ids[len(scan.ids)-1]
		return
	}
	r.types, r.after = r.types[1:], ""
}

// startOne starts an entity by a request to be there.
func (c *core) startOne(s *shard, id sharding.EntityID) {
	if id.ID == "" { // a type that could not be read
		delete(s.memory.back, id)
		s.memory.types = append(s.memory.types, id.Type)
		return
	}
	if e := s.entities.get(id, c.key(id)); e != nil && e.phase == resident {
		delete(s.memory.back, id)
		return
	}
	c.reminder.flying++
	c.reminder.allowed--
	r := &Request{Kind: start, Entity: id, Shard: s.id, ExpectedSequence: NoExpectation}
	r.Done = &starting{core: c, shard: s, term: s.term}
	s.undecided++
	c.owed++
	c.dispatch(s, r)
}

// started answers a request to be in memory. What turns out not to exist
// leaves again.
func (c *core) started(e *entity, r *Request) {
	c.settle(e.shard, r, Result{})
	if !c.stays(e) && e.waiting.len == 0 {
		c.leave(e)
	}
}

// starting is an entity on its way into memory.
type starting struct {
	core  *core
	shard *shard
	term  sharding.Term
}

// Complete implements Completer, on the lane's goroutine.
func (f *starting) Complete(r *Request) {
	c, s := f.core, f.shard
	c.reminder.flying--
	if s.state != leading || s.term != f.term {
		return
	}
	if err := r.Result.Err; err == nil || errors.Is(err, ErrStopped) {
		c.stats.Remembered++
		delete(s.memory.back, r.Entity)
		return
	}
	s.memory.hold(r.Entity, c.now.UnixNano())
	c.list(s)
}

// hold keeps an entity back that failed.
func (r *remembering) hold(id sharding.EntityID, now int64) {
	b, held := r.back[id]
	if !held && len(r.back) >= rememberedBack {
		return // the next leader starts it, or the next command
	}
	b.until = now + int64(min(rememberRetry<<min(b.times, 10), rememberRetryMost))
	b.times++
	if r.back == nil {
		r.back = make(map[sharding.EntityID]heldBack)
	}
	r.back[id] = b
	if r.backAt == 0 || b.until < r.backAt {
		r.backAt = b.until
	}
}

// rests lets an entity of a type that remembers rest: the record of a request
// by which it leaves says so, to whoever leads the shard next.
func (c *core) rests(e *entity, r *Request, rec *journal.Record) {
	if e.typ.Remember && !e.typ.Singleton && (c.output.Passivate || r.Kind == Passivate) {
		rec.Flags |= journal.FlagResting
	}
}

// putToRest carries out a caller's request to let a remembered entity leave,
// with a record.
func (c *core) putToRest(e *entity, r *Request) bool {
	if !e.typ.Remember || e.typ.Singleton || !e.lives {
		return false
	}
	if c.readOnly() {
		c.settle(e.shard, r, Result{Err: ErrReadOnly})
		return true
	}
	now := c.logNow(e.shard)
	c.output.Reset()
	c.fuel = 0
	r.ID, r.ServerID = journal.CommandID(fmt.Sprintf("passivate-%016x", now)), true
	c.append(e, r, Env{Now: now}, 0)
	return true
}
