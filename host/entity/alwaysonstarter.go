package entity

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hostd/hostd/abi/manifest"
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
	// startsAtOnce bounds the entities of an executor that are being
	// started. It leaves half of the loaders to callers.
	startsAtOnce = 4
	// pageSize bounds the ids that are read at a time.
	pageSize = 256
	// burst bounds how many entities are started at once.
	burst = 64
	// heldBackMost bounds the failed entities of a shard that wait for a retry,
	// without singletons, of which each type has only one.
	heldBackMost = 4096
	// retry is the wait after the first failure. It doubles up to retryMost.
	retry     = time.Second
	retryMost = 5 * time.Minute
	// crowdedFor is how long no entity is started after the executor's memory
	// was found full.
	crowdedFor = 10 * time.Second
)

// existingReader lists the ids of a type's existing entities that are not
// stopped, in order, beginning after the given id. A result with fewer than
// limit ids is the last page.
type existingReader interface {
	ListExisting(ctx context.Context, shard sharding.ShardID, entityType, after string, limit int) ([]string, error)
}

// alwaysOnExecutor is the executor that an alwaysOnStarter belongs to. No method
// blocks.
type alwaysOnExecutor interface {
	// Now is the time of the executor's current turn.
	Now() time.Time
	// IsDeferring reports whether the shard delays other requests.
	IsDeferring(shard sharding.ShardID) bool
	// IsResident reports whether an entity is in memory.
	IsResident(shard sharding.ShardID, id sharding.EntityID) bool
	// IsCrowded reports whether the executor's memory is nearly full.
	IsCrowded() bool
	// Fire hands a request to its entity.
	Fire(*request.Request)
	// List performs a scan on another goroutine and passes it to
	// alwaysOnStarter.OnScan.
	List(*alwaysOnScan)
}

// alwaysOnTypes lists the always-on types that this node serves. No method
// may block.
type alwaysOnTypes interface {
	// AlwaysOn returns the names of the types. It is called when the executor
	// begins to lead a shard and when activations change.
	AlwaysOn() []string
	// Singletons returns the entities of singleton types that belong to a shard.
	Singletons(sharding.ShardID) []sharding.EntityID
}

// alwaysOnOptions configure an alwaysOnStarter.
type alwaysOnOptions struct {
	// Rate is the number of entities started per second, at least 1.
	Rate  int
	Types alwaysOnTypes
	// Listed reports whether the executor can list entities. If it cannot, only
	// singletons and entities that left memory are started.
	Listed bool
	Logger *slog.Logger
}

// alwaysOnStarter starts the entities of the shards that an executor leads.
type alwaysOnStarter struct {
	opts       alwaysOnOptions
	exec       alwaysOnExecutor
	led        map[sharding.ShardID]*alwaysOnShard
	types      []string         // always-on types at the last call of UpdateTypes
	shards     []*alwaysOnShard // shards with entities to start
	scan       *alwaysOnScan
	inProgress int // entities that are being started
	allowed    int // number of entities that may be started now
	at         int64
	counted    int64 // when allowed was last updated
	started    uint64
}

// alwaysOnShard holds the entities to start of a shard that this node leads.
type alwaysOnShard struct {
	id        sharding.ShardID
	dropped   bool     // the shard is no longer led
	listed    bool     // the shard is in alwaysOnStarter.shards
	types     []string // types to read; the ids of the first type are read up to after
	after     string
	typ       string   // type of the entities in page
	page      []string // ids that were read and not started
	returning []sharding.EntityID
	back      map[sharding.EntityID]heldBack
	backAt    int64 // time of the earliest retry in back; 0 if there is none
}

// heldBack is the retry state of a failed entity.
type heldBack struct {
	until int64
	times int
}

func (s *alwaysOnShard) empty() bool {
	return len(s.types)+len(s.page)+len(s.returning)+len(s.back) == 0
}

// IsHeldBack reports whether an entity has failed and waits for a retry.
func (s *alwaysOnShard) IsHeldBack(id sharding.EntityID) bool {
	_, waits := s.back[id]
	return waits
}

// alwaysOnScan is a request for ids and its result.
type alwaysOnScan struct {
	shard *alwaysOnShard
	id    sharding.ShardID
	typ   string
	after string
	ids   []string
	err   error
}

// Do performs the scan. It may be called from any goroutine, once, before the
// scan is passed to alwaysOnStarter.OnScan.
func (s *alwaysOnScan) Do(ctx context.Context, r existingReader) {
	s.ids, s.err = r.ListExisting(ctx, s.id, s.typ, s.after, pageSize)
}

// newAlwaysOnStarter returns the alwaysOnStarter of an executor that leads no shard.
func newAlwaysOnStarter(opts alwaysOnOptions, exec alwaysOnExecutor) *alwaysOnStarter {
	return &alwaysOnStarter{opts: opts, exec: exec, led: make(map[sharding.ShardID]*alwaysOnShard)}
}

// HasTypes reports whether there are always-on types.
func (m *alwaysOnStarter) HasTypes() bool { return len(m.types) > 0 }

// At is when the executor must call Start, in unix nanoseconds; 0 for never.
func (m *alwaysOnStarter) At() int64 { return m.at }

// StartCount is the number of entities started so far.
func (m *alwaysOnStarter) StartCount() uint64 { return m.started }

// Lead begins to start the entities of a shard that this node now leads.
func (m *alwaysOnStarter) Lead(id sharding.ShardID) *alwaysOnShard {
	m.UpdateTypes()
	s := &alwaysOnShard{id: id}
	m.led[id] = s
	m.enqueueTypes(s, m.types)
	return s
}

// Drop forgets the entities of a shard that is no longer led.
func (m *alwaysOnStarter) Drop(s *alwaysOnShard) {
	delete(m.led, s.id)
	*s = alwaysOnShard{id: s.id, dropped: true, listed: s.listed}
}

func (m *alwaysOnStarter) enqueueTypes(s *alwaysOnShard, types []string) {
	if len(types) > 0 && m.opts.Listed {
		s.types = append(s.types, types...)
		m.list(s)
	}
	if len(types) == 0 {
		return
	}
	for _, id := range m.opts.Types.Singletons(s.id) {
		if slices.Contains(types, id.Type) {
			s.returning = append(s.returning, id)
			m.list(s)
		}
	}
}

// UpdateTypes updates the list of always-on types, and starts the entities of
// new types in all shards that the executor leads.
func (m *alwaysOnStarter) UpdateTypes() {
	known := m.types
	m.types = m.opts.Types.AlwaysOn()
	fresh := slices.DeleteFunc(slices.Clone(m.types), func(t string) bool { return slices.Contains(known, t) })
	if len(fresh) == 0 {
		return
	}
	for _, s := range m.led {
		m.enqueueTypes(s, fresh)
	}
}

func (m *alwaysOnStarter) list(s *alwaysOnShard) {
	if !s.listed {
		s.listed = true
		m.shards = append(m.shards, s)
	}
}

// StartAgain starts an entity that has left memory.
func (m *alwaysOnStarter) StartAgain(s *alwaysOnShard, id sharding.EntityID) {
	s.returning = append(s.returning, id)
	m.list(s)
}

// Start starts as many entities as the rate allows.
func (m *alwaysOnStarter) Start() {
	if m.at = 0; len(m.shards) == 0 {
		return
	}
	now := m.exec.Now().UnixNano()
	every := int64(time.Second) / int64(m.opts.Rate)
	if gained := (now - m.counted) / every; gained > 0 || m.counted == 0 {
		m.allowed, m.counted = int(min(burst, int64(m.allowed)+gained)), now
	}
	if m.exec.IsCrowded() {
		m.at = now + int64(crowdedFor)
		return
	}
	for looked := 0; looked < len(m.shards) && m.inProgress < startsAtOnce; {
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
func (m *alwaysOnStarter) next(s *alwaysOnShard, now int64) (id sharding.EntityID, ok bool) {
	switch {
	case m.exec.IsDeferring(s.id):
		return id, false // requests of callers come first
	case s.backAt > 0 && s.backAt <= now:
		return s.retry(now)
	case len(s.returning) > 0:
		id, s.returning = s.returning[0], s.returning[1:]
		return id, true
	case len(s.page) > 0:
		id, s.page = sharding.EntityID{Type: s.typ, ID: s.page[0]}, s.page[1:]
		return id, true
	case len(s.types) > 0 && m.scan == nil:
		m.scan = &alwaysOnScan{shard: s, id: s.id, typ: s.types[0], after: s.after}
		m.exec.List(m.scan)
	}
	return id, false
}

// retry returns a held-back entity whose retry is due. The count of its
// failures is kept until the entity is started.
func (s *alwaysOnShard) retry(now int64) (id sharding.EntityID, ok bool) {
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

// OnScan handles the result of a scan.
func (m *alwaysOnStarter) OnScan(scan *alwaysOnScan) {
	m.scan = nil
	s := scan.shard
	if s.dropped {
		return
	}
	if scan.err != nil {
		m.opts.Logger.Error("cannot list always-on entities", "shard_id", s.id, "entity_type", scan.typ, "error", scan.err)
		s.holdBack(sharding.EntityID{Type: scan.typ}, m.exec.Now().UnixNano()) // retry the whole type later
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
func (m *alwaysOnStarter) start(s *alwaysOnShard, id sharding.EntityID) {
	if id.ID == "" { // not an entity, but a type whose ids could not be read
		delete(s.back, id)
		s.types = append(s.types, id.Type)
		return
	}
	if m.exec.IsResident(s.id, id) {
		delete(s.back, id)
		return
	}
	m.inProgress++
	m.allowed--
	r := &request.Request{Kind: request.Start, Entity: id, Shard: s.id, ExpectedSequence: request.NoExpectation}
	r.Done = &starting{starter: m, shard: s}
	m.exec.Fire(r)
}

// starting is an entity that is being started.
type starting struct {
	starter *alwaysOnStarter
	shard   *alwaysOnShard
}

// Complete implements request.Completer, on the executor's goroutine.
func (f *starting) Complete(r *request.Request) {
	m, s := f.starter, f.shard
	m.inProgress--
	if s.dropped {
		return
	}
	if err := r.Result.Err; err == nil || errors.Is(err, request.ErrStopped) {
		m.started++
		delete(s.back, r.Entity)
		return
	}
	s.holdBack(r.Entity, m.exec.Now().UnixNano())
	m.list(s)
}

// holdBack schedules the retry of a failed entity.
func (s *alwaysOnShard) holdBack(id sharding.EntityID, now int64) {
	b, waits := s.back[id]
	if !waits && len(s.back) >= heldBackMost && id.ID != manifest.SingletonID {
		return // the next command or the next leader starts the entity
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
