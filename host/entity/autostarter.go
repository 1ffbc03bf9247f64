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

// The entities of an always-on type are in memory without requests. The leader
// of a shard reads their ids from the applied state, a page at a time, and
// starts them at a limited rate and concurrency, after callers' requests. An
// entity that its handler or a caller has passivated is stopped: its last
// record says so, and it is started only by its next command. An entity that
// left memory for another reason is started again, and an entity that failed is
// retried later.
//
//	known types --> reading ids --> ids of a page ----+--> started --> in memory
//	                             left, not stopped ---+       |
//	                                held back  <--------------+ failed

const (
	// autostartAtOnce bounds the entities of an executor that are being
	// started. It leaves half of the loaders to callers.
	autostartAtOnce = 4
	// pageSize bounds the ids that are read at a time.
	pageSize = 256
	// burst bounds how many entities are started at once.
	burst = 64
	// heldBackMost bounds the failed entities of a shard that wait for a retry.
	heldBackMost = 4096
	// retry is the wait after the first failure. It doubles up to retryMost.
	retry     = time.Second
	retryMost = 5 * time.Minute
	// crowdedFor is how long no entity is started after the executor's memory
	// was found full.
	crowdedFor = 10 * time.Second
)

// existingReader lists the ids of a type's entities that exist and are not
// stopped, in order, after the given id. It returns fewer than limit only at
// the end.
type existingReader interface {
	ListExisting(ctx context.Context, shard sharding.ShardID, entityType, after string, limit int) ([]string, error)
}

// autostartLane is the executor that an autostarter belongs to. No method
// blocks.
type autostartLane interface {
	// Now is the time of the executor's current turn.
	Now() time.Time
	// Deferring reports whether the shard delays other requests.
	Deferring(shard sharding.ShardID) bool
	// Resident reports whether an entity is in memory.
	Resident(shard sharding.ShardID, id sharding.EntityID) bool
	// Crowded reports whether the executor's memory is nearly full.
	Crowded() bool
	// Fire hands a request to its entity.
	Fire(*request.Request)
	// List performs a scan on another goroutine and passes it to Found.
	List(*autostartScan)
}

// autostartOptions configure an autostarter.
type autostartOptions struct {
	// Rate is the number of entities started per second, at least 1.
	Rate int
	// Types returns the names of the always-on types. It may be nil.
	Types func() []string
	// Singletons returns the singletons of always-on types that belong to a
	// shard. It may be nil.
	Singletons func(sharding.ShardID) []sharding.EntityID
	// Listed reports whether the executor can list entities. Otherwise only
	// singletons and entities that left memory are started.
	Listed bool
	Logger *slog.Logger
}

// autostarter starts the entities of the shards that an executor leads.
type autostarter struct {
	opts    autostartOptions
	lane    autostartLane
	led     map[sharding.ShardID]*autostartShard
	types   []string          // always-on types at the last call of Learn
	shards  []*autostartShard // shards with entities to start
	scan    *autostartScan
	flying  int // entities that are being started
	allowed int // number of entities that may be started now
	at      int64
	counted int64 // when allowed was last updated
	started uint64
}

// autostartShard holds the entities to start of a shard that this node leads.
type autostartShard struct {
	id        sharding.ShardID
	over      bool     // the shard is no longer led
	listed    bool     // the shard is in autostarter.shards
	types     []string // types to read; of the first, the ids after after
	after     string
	typ       string   // of page
	page      []string // ids that were read and not started
	returning []sharding.EntityID
	back      map[sharding.EntityID]heldBack
	backAt    int64 // earliest retry in back; 0 if there is none
}

// heldBack is the retry state of a failed entity.
type heldBack struct {
	until int64
	times int
}

func (s *autostartShard) empty() bool {
	return len(s.types)+len(s.page)+len(s.returning)+len(s.back) == 0
}

// HeldBack reports whether an entity has failed and waits for a retry.
func (s *autostartShard) HeldBack(id sharding.EntityID) bool {
	_, waits := s.back[id]
	return waits
}

// autostartScan is a request for ids and its result.
type autostartScan struct {
	shard *autostartShard
	id    sharding.ShardID
	typ   string
	after string
	ids   []string
	err   error
}

// Do performs the scan. It may be called from any goroutine, once, before the
// scan is passed to autostarter.Found.
func (s *autostartScan) Do(ctx context.Context, r existingReader) {
	s.ids, s.err = r.ListExisting(ctx, s.id, s.typ, s.after, pageSize)
}

// newAutostarter returns the autostarter of an executor that leads no shard.
func newAutostarter(opts autostartOptions, lane autostartLane) *autostarter {
	return &autostarter{opts: opts, lane: lane, led: make(map[sharding.ShardID]*autostartShard)}
}

// Any reports whether there are always-on types.
func (m *autostarter) Any() bool { return len(m.types) > 0 }

// At is when the executor must call Start, in unix nanoseconds; 0 for never.
func (m *autostarter) At() int64 { return m.at }

// Started is the number of entities started so far.
func (m *autostarter) Started() uint64 { return m.started }

// Lead begins to start the entities of a shard that this node now leads.
func (m *autostarter) Lead(id sharding.ShardID) *autostartShard {
	m.Learn()
	s := &autostartShard{id: id}
	m.led[id] = s
	m.enqueueTypes(s, m.types)
	return s
}

// Drop forgets the entities of a shard that is no longer led.
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

// Learn updates the list of always-on types, and starts the entities of new
// ones in all shards that are led.
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

// Again starts an entity that has left memory.
func (m *autostarter) Again(s *autostartShard, id sharding.EntityID) {
	s.returning = append(s.returning, id)
	m.list(s)
}

// Start starts as many entities as the rate allows.
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

// next returns an entity of the shard that may be started now. If none is
// known, it requests the next page of ids.
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

// retry returns the first held-back entity that is due. The entity keeps its
// number of failures until it is started.
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

// Found handles the result of a scan.
func (m *autostarter) Found(scan *autostartScan) {
	m.scan = nil
	s := scan.shard
	if s.over {
		return
	}
	if scan.err != nil {
		m.opts.Logger.Error("remembered entities cannot be read", "shard_id", s.id, "entity_type", scan.typ, "error", scan.err)
		s.holdBack(sharding.EntityID{Type: scan.typ}, m.lane.Now().UnixNano()) // the whole type is retried
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

// start starts an entity by a request of kind Start.
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

// starting is an entity that is being started.
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

// holdBack schedules the retry of a failed entity.
func (s *autostartShard) holdBack(id sharding.EntityID, now int64) {
	b, waits := s.back[id]
	if !waits && len(s.back) >= heldBackMost {
		return // the next leader starts it, or the next command does
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
