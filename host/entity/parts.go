package entity

import (
	"time"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// parts gives the parts of the core access to it. It implements
// timers.Executor, intakeExecutor and alwaysOnExecutor.
type parts struct{ c *core }

func (p parts) Now() time.Time { return p.c.now }

func (p parts) Clock(shard sharding.ShardID) (logNow int64, decided uint64) {
	s := p.c.shards[shard]
	return s.logNow(), s.log.DecidedTo()
}

func (p parts) IsDeferring(shard sharding.ShardID) bool {
	s := p.c.shards[shard]
	return s.deferred.Len() > 0 || s.isFull()
}

func (p parts) IsCold(shard sharding.ShardID, id sharding.EntityID) bool {
	e := p.c.residents.find(p.c.shards[shard], id, p.c.key(id))
	return e == nil || e.phase != inMemory
}

func (p parts) Fire(r *request.Request) {
	s := p.c.shards[r.Shard]
	s.undecided++
	p.c.owed++
	p.c.dispatch(s, r)
}

func (p parts) Read(scan *timers.Scan) {
	p.c.runner.Start(timerReading{scan, p.c.opts.Histories})
}

func (p parts) List(scan *alwaysOnScan) {
	p.c.runner.Start(existingReading{scan, p.c.opts.Existing})
}

func (p parts) IsResident(shard sharding.ShardID, id sharding.EntityID) bool {
	e := p.c.shards[shard].entities.Get(id, p.c.key(id))
	return e != nil && e.phase == inMemory
}

func (p parts) IsCrowded() bool {
	_, sum := p.c.residents.usage()
	return sum > p.c.opts.ExecutorBytes/10*9
}

func (p parts) Load() (owed int, commit int64) {
	return p.c.owed - p.c.timers.Counts().Admitted, p.c.timers.LastCommit()
}

func (p parts) IsLate(r *request.Request) bool { return p.c.isPastDeadline(r) }

func (p parts) Allow(entityType string, now int64) (wait time.Duration) {
	t := p.c.opts.Types.Lookup(entityType)
	if t == nil {
		return 0
	}
	if wait, _ = t.budgetWait(now); wait == 0 {
		wait = t.Rate.Take(now)
	}
	return wait
}

func (p parts) Hand(r *request.Request) {
	if s := p.c.shards[r.Shard]; !s.deferIfFull(r) {
		p.c.dispatch(s, r)
	}
}

func (p parts) Refuse(r *request.Request, err error) {
	p.c.shards[r.Shard].settle(r, request.Result{Err: err})
}

func (p parts) LookAt(at int64) { p.c.timers.LookAt(at) }
