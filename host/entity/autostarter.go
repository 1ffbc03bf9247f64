package entity

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// The entities of a type that remembers them are in memory without being asked
// for. The leader of a shard reads their ids from what is stored, a window at a
// time, and starts them at a bounded rate, a few at a time, behind what callers
// ask for. An entity whose handler or caller has let it leave is stopped: its
// last record says so, and nobody starts it until its next command. One that
// left for another reason is started again; one that fails is tried again
// later.
//
//	known types --> reading ids --> ids of a window --+--> started --> in memory
//	                                left, not asked --+       |
//	                                held back  <--------------+ failed

const (
	// autostartAtOnce bounds the entities of an executor that are being started: half of its
	// loaders are for callers.
	autostartAtOnce = 4
	// pageSize bounds the ids that are read at a time.
	pageSize = 256
	// burst bounds how many are started at a moment.
	burst = 64
	// heldBackMost bounds the entities of a shard that failed and wait.
	heldBackMost = 4096
	// retry is how long one that failed waits; it doubles up to retryMost.
	retry     = time.Second
	retryMost = 5 * time.Minute
	// crowdedFor is how long nothing is started when the executor's memory is full.
	crowdedFor = 10 * time.Second
)

// A Reader lists the entities of a type that exist and do not rest, by id,
// after the id given. It returns fewer than limit only at the end.
type existingReader interface {
	ListExisting(ctx context.Context, shard sharding.ShardID, entityType, after string, limit int) ([]string, error)
}

// autostartLane is what is needed of the executor whose entities are started. No method
// blocks.
type autostartLane interface {
	// Now is the time of this turn.
	Now() time.Time
	// Deferring reports that the shard holds back requests of others.
	Deferring(shard sharding.ShardID) bool
	// Resident reports that an entity is in memory.
	Resident(shard sharding.ShardID, id sharding.EntityID) bool
	// Crowded reports that the executor's memory is nearly full.
	Crowded() bool
	// Fire brings a request to its entity.
	Fire(*request.Request)
	// List has a scan done on another goroutine; it comes back to Found.
	List(*autostartScan)
}

// autostartOptions of a Starter.
type autostartOptions struct {
	// Rate is how many entities are started in a second, at least 1.
	Rate int
	// Types names the types whose entities are started; nil: none.
	Types func() []string
	// Singletons are the entities of the singleton types among these that belong
	// to a shard. Nil: there are none.
	Singletons func(sharding.ShardID) []sharding.EntityID
	// Listed: the executor can list entities. Otherwise singletons alone are started,
	// and what has left.
	Listed bool
	Logger *slog.Logger
}

// autostarter starts the entities of the shards that an executor leads.
type autostarter struct {
	opts    autostartOptions
	lane    autostartLane
	led     map[sharding.ShardID]*autostartShard
	types   []string          // that remember their entities, when it was last looked
	shards  []*autostartShard // with something to start
	scan    *autostartScan
	flying  int // started, with no outcome yet
	allowed int // may be started now
	at      int64
	counted int64 // when allowed was brought up to date
	started uint64
}

// autostartShard is what a shard that is led has to start.
type autostartShard struct {
	id        sharding.ShardID
	over      bool     // it is not led any more
	listed    bool     // in Starter.shards
	types     []string // to be read; of the first the ids after after
	after     string
	typ       string   // of page
	page      []string // read and not started
	returning []sharding.EntityID
	back      map[sharding.EntityID]heldBack
	backAt    int64 // when the first of back may be tried
}

// heldBack is an entity that failed and waits.
type heldBack struct {
	until int64
	times int
}

func (s *autostartShard) empty() bool {
	return len(s.types)+len(s.page)+len(s.returning)+len(s.back) == 0
}

// HeldBack reports that an entity has failed and waits.
func (s *autostartShard) HeldBack(id sharding.EntityID) bool {
	_, waits := s.back[id]
	return waits
}

// autostartScan asks for ids, and is the answer.
type autostartScan struct {
	shard *autostartShard
	id    sharding.ShardID
	typ   string
	after string
	ids   []string
	err   error
}

// Do carries the scan out. It may be called from any goroutine, once, before
// the scan comes back to Starter.Found.
func (s *autostartScan) Do(ctx context.Context, r existingReader) {
	s.ids, s.err = r.ListExisting(ctx, s.id, s.typ, s.after, pageSize)
}

// newAutostarter returns the starter of an executor that leads nothing.
func newAutostarter(opts autostartOptions, lane autostartLane) *autostarter {
	return &autostarter{opts: opts, lane: lane, led: make(map[sharding.ShardID]*autostartShard)}
}

// Any reports that there are types whose entities are started.
func (m *autostarter) Any() bool { return len(m.types) > 0 }

// At is when the executor is to call Start, unix nanoseconds; 0 for never.
func (m *autostarter) At() int64 { return m.at }

// Started is how many entities have been started.
func (m *autostarter) Started() uint64 { return m.started }

// Lead has the entities of a shard read that this node begins to lead.
func (m *autostarter) Lead(id sharding.ShardID) *autostartShard {
	m.Learn()
	s := &autostartShard{id: id}
	m.led[id] = s
	m.enqueueTypes(s, m.types)
	return s
}

// Drop forgets what is to be started of a shard that is led no more.
func (m *autostarter) Drop(s *autostartShard) {
	delete(m.led, s.id)
	*s = autostartShard{id: s.id, over: true, listed: s.listed}
}

func (m *autostarter) enqueueTypes(s *autostartShard, types []string) {
	if len(types) > 0 && m.opts.Listed {
		s.types = append(s.types, types...)
		m.list(s)
	}
	if len(types) == 0 || m.opts.Singletons == nil {
		return
	}
	for _, id := range m.opts.Singletons(s.id) {
		if slices.Contains(types, id.Type) {
			s.returning = append(s.returning, id)
			m.list(s)
		}
	}
}

// Learn looks which types remember, and has the shards that are led read for
// those that are new.
func (m *autostarter) Learn() {
	if m.opts.Types == nil {
		return
	}
	known := m.types
	m.types = m.opts.Types()
	fresh := slices.DeleteFunc(slices.Clone(m.types), func(t string) bool { return slices.Contains(known, t) })
	if len(fresh) == 0 {
		return
	}
	for _, s := range m.led {
		m.enqueueTypes(s, fresh)
	}
}

func (m *autostarter) list(s *autostartShard) {
	if !s.listed {
		s.listed = true
		m.shards = append(m.shards, s)
	}
}

// Again has an entity started that has left.
func (m *autostarter) Again(s *autostartShard, id sharding.EntityID) {
	s.returning = append(s.returning, id)
	m.list(s)
}

// Start starts what there is to start, as far as the rate allows.
func (m *autostarter) Start() {
	if m.at = 0; len(m.shards) == 0 {
		return
	}
	now := m.lane.Now().UnixNano()
	every := int64(time.Second) / int64(m.opts.Rate)
	if gained := (now - m.counted) / every; gained > 0 || m.counted == 0 {
		m.allowed, m.counted = int(min(burst, int64(m.allowed)+gained)), now
	}
	if m.lane.Crowded() {
		m.at = now + int64(crowdedFor)
		return
	}
	for looked := 0; looked < len(m.shards) && m.flying < autostartAtOnce; {
		s := m.shards[looked]
		if s.empty() {
			s.listed = false
			m.shards = slices.Delete(m.shards, looked, looked+1)
			continue
		}
		if m.allowed == 0 {
			m.at = now + every
			break
		}
		id, ok := m.next(s, now)
		if !ok {
			looked++
			continue
		}
		m.start(s, id)
	}
	for _, s := range m.shards {
		if at := s.backAt; at > 0 && (m.at == 0 || at < m.at) {
			m.at = max(at, now+1)
		}
	}
}

// next is an entity of the shard that may be started now. Where none is known
// it has more read.
func (m *autostarter) next(s *autostartShard, now int64) (id sharding.EntityID, ok bool) {
	switch {
	case m.lane.Deferring(s.id):
		return id, false // callers first
	case s.backAt > 0 && s.backAt <= now:
		return s.retry(now)
	case len(s.returning) > 0:
		id, s.returning = s.returning[0], s.returning[1:]
		return id, true
	case len(s.page) > 0:
		id, s.page = sharding.EntityID{Type: s.typ, ID: s.page[0]}, s.page[1:]
		return id, true
	case len(s.types) > 0 && m.scan == nil:
		m.scan = &autostartScan{shard: s, id: s.id, typ: s.types[0], after: s.after}
		m.lane.List(m.scan)
	}
	return id, false
}

// retry takes the first of those that were held back. Its number of failures
// stays until it is started.
func (s *autostartShard) retry(now int64) (id sharding.EntityID, ok bool) {
	s.backAt = 0
	for e, b := range s.back {
		switch {
		case !ok && b.until <= now:
			id, ok = e, true
		case s.backAt == 0 || b.until < s.backAt:
			s.backAt = b.until
		}
	}
	if ok {
		s.back[id] = heldBack{until: now + int64(retryMost), times: s.back[id].times}
	}
	return id, ok
}

// Found takes the ids that were read.
func (m *autostarter) Found(scan *autostartScan) {
	m.scan = nil
	s := scan.shard
	if s.over {
		return
	}
	if scan.err != nil {
		m.opts.Logger.Error("remembered entities cannot be read", "shard_id", s.id, "entity_type", scan.typ, "error", scan.err)
		s.holdBack(sharding.EntityID{Type: scan.typ}, m.lane.Now().UnixNano()) // the whole type is tried again
		s.types, s.after = s.types[1:], ""
		return
	}
	s.typ, s.page = scan.typ, scan.ids
	if len(scan.ids) == pageSize {
		s.after = scan.ids[len(scan.ids)-1]
		return
	}
	s.types, s.after = s.types[1:], ""
}

// start starts an entity by a request to be there.
func (m *autostarter) start(s *autostartShard, id sharding.EntityID) {
	if id.ID == "" { // a type that could not be read
		delete(s.back, id)
		s.types = append(s.types, id.Type)
		return
	}
	if m.lane.Resident(s.id, id) {
		delete(s.back, id)
		return
	}
	m.flying++
	m.allowed--
	r := &request.Request{Kind: request.Start, Entity: id, Shard: s.id, ExpectedSequence: request.NoExpectation}
	r.Done = &starting{starter: m, shard: s}
	m.lane.Fire(r)
}

// starting is an entity on its way into memory.
type starting struct {
	starter *autostarter
	shard   *autostartShard
}

// Complete implements request.Completer, on the executor's goroutine.
func (f *starting) Complete(r *request.Request) {
	m, s := f.starter, f.shard
	m.flying--
	if s.over {
		return
	}
	if err := r.Result.Err; err == nil || errors.Is(err, request.ErrStopped) {
		m.started++
		delete(s.back, r.Entity)
		return
	}
	s.holdBack(r.Entity, m.lane.Now().UnixNano())
	m.list(s)
}

// holdBack keeps an entity back that failed.
func (s *autostartShard) holdBack(id sharding.EntityID, now int64) {
	b, waits := s.back[id]
	if !waits && len(s.back) >= heldBackMost {
		return // the next leader starts it, or the next command
	}
	b.until = now + int64(min(retry<<min(b.times, 10), retryMost))
	b.times++
	if s.back == nil {
		s.back = make(map[sharding.EntityID]heldBack)
	}
	s.back[id] = b
	if s.backAt == 0 || b.until < s.backAt {
		s.backAt = b.until
	}
}
