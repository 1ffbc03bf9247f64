package entity

import (
	"context"
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// parkedSet finds a shard's parked entities without a look at the others. Some
// in it are parked no more: they leave when the set is read or has doubled.
type parkedSet struct {
	entities map[*entity]struct{}
	sweepAt  int
}

func (p *parkedSet) add(c *core, e *entity) {
	if p.entities == nil {
		p.entities, p.sweepAt = make(map[*entity]struct{}), 64
	}
	if p.entities[e] = struct{}{}; len(p.entities) > p.sweepAt {
		p.sweep(c)
		p.sweepAt = max(64, 2*len(p.entities))
	}
}

func (p *parkedSet) sweep(c *core) {
	for e := range p.entities {
		if !e.parked(c.now) || !e.shard.entities.has(e) {
			delete(p.entities, e)
		}
	}
}

// ParkedQuery selects parked entities of a shard.
type ParkedQuery struct {
	Shard    sharding.ShardID
	Type     string
	IDPrefix string
	After    string // only ids greater than this
	Limit    int    // at least 1
}

// parkedSurvey is a ParkedQuery on its way through the lane.
type parkedSurvey struct {
	ParkedQuery
	ids  []string
	err  error
	done chan struct{}
}

// Parked returns the ids of entities that are parked, in order, at most
// q.Limit. It fails with a NotLeaderError where the lane does not lead the
// shard. It waits for the lane's next turn, no longer than ctx.
func (l *Lane) Parked(ctx context.Context, q ParkedQuery) ([]string, error) {
	survey := &parkedSurvey{ParkedQuery: q, done: make(chan struct{})}
	l.put(event{kind: evParked, shard: q.Shard, parked: survey})
	select {
	case <-survey.done:
		return survey.ids, survey.err
	case <-l.done:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// findParked answers a survey.
func (c *core) findParked(q *parkedSurvey) {
	defer close(q.done)
	s := c.shards[q.Shard]
	if s == nil || s.state != leading {
		q.err = &sharding.NotLeaderError{Shard: q.Shard}
		return
	}
	s.parked.sweep(c)
	for e := range s.parked.entities {
		if e.id.Type == q.Type && e.id.ID > q.After && strings.HasPrefix(e.id.ID, q.IDPrefix) {
			q.ids = append(q.ids, e.id.ID)
		}
	}
	slices.Sort(q.ids)
	q.ids = q.ids[:min(len(q.ids), q.Limit)]
}

// turnAway refuses what waits for a parked entity, but for what a person does
// about it: skipping its timer or deleting it takes its history and not the
// command that faults, so it is loaded for that. It reports whether anything
// is left to load it for.
func (c *core) turnAway(e *entity) bool {
	for n := e.waiting.len; n > 0; n-- {
		if r := e.waiting.pop(); r.Kind == SkipTimer || r.Kind == Delete {
			e.waiting.push(r)
		} else {
			c.settle(e.shard, r, Result{Err: ErrParked})
		}
	}
	return e.waiting.len > 0
}
