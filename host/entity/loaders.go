package entity

import "sync"

// loaderPool is the pool of an executor's loader goroutines. Do starts a
// goroutine, up to the limit, if all others are busy. Goroutines stay until
// Close, because their stacks have grown to the necessary size. Further jobs
// wait; there are at most as many as the executor's shards have requests.
//
// The entities of one caller or type, or a few entities with long histories,
// must not keep all goroutines busy, because all other entities would wait
// for them. So the jobs of a kind get at most three quarters of the
// goroutines, and costly jobs of all kinds three eighths. Kinds take turns.
// The quick jobs of a kind are done in order, and so are its costly jobs, but
// a quick job may overtake a costly one.
type loaderPool struct {
	most, mostOfKind, mostCostly int

	all sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond // signals, with mu, that waiting or closed has changed
	kinds   map[string]*loaderKind
	turns   []*loaderKind // kinds with waiting jobs, in the order of their turns
	costly  int           // costly jobs in progress
	started int
	idle    int // goroutines that wait for a job and were not signalled
	closed  bool
}

// loaderKind holds the jobs of one kind. It exists while there are such jobs.
type loaderKind struct {
	name          string
	working       int
	quick, costly []func()
}

func (k *loaderKind) isWaiting() bool { return len(k.quick)+len(k.costly) > 0 }

// newLoaderPool returns a pool of at most most goroutines.
func newLoaderPool(most int) *loaderPool {
	p := &loaderPool{most: most, mostOfKind: most - most/4, mostCostly: max(1, 3*most/8), kinds: make(map[string]*loaderKind)}
	p.changed.L = &p.mu
	return p
}

// Do queues a job of a kind. It never blocks.
func (p *loaderPool) Do(kind string, costly bool, job func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[kind]
	if k == nil {
		k = &loaderKind{name: kind}
		p.kinds[kind] = k
	}
	if !k.isWaiting() {
		p.turns = append(p.turns, k)
	}
	if costly {
		k.costly = append(k.costly, job)
	} else {
		k.quick = append(k.quick, job)
	}
	switch {
	case p.idle > 0:
		p.idle--
		p.changed.Signal()
	case p.started < p.most:
		p.started++
		p.all.Go(p.run)
	}
}

// take removes the job whose turn is next. It returns nil if every waiting job
// belongs to a kind that has its share of the goroutines. p.mu must be held.
func (p *loaderPool) take() (job func(), k *loaderKind, costly bool) {
	for i, k := range p.turns {
		if k.working >= p.mostOfKind {
			continue
		}
		// The pool limits concurrent costly jobs, so that quick jobs find
		// goroutines too.
		from := &k.costly
		if costly = len(k.costly) > 0 && p.costly < p.mostCostly; !costly {
			from = &k.quick
		}
		if len(*from) == 0 {
			continue
		}
		job = (*from)[0]
		(*from)[0] = nil
		if *from = (*from)[1:]; len(*from) == 0 {
			*from = nil
		}
		p.turns = append(p.turns[:i], p.turns[i+1:]...)
		if k.isWaiting() {
			p.turns = append(p.turns, k)
		}
		k.working++
		if costly {
			p.costly++
		}
		return job, k, costly
	}
	return nil, nil, false
}

func (p *loaderPool) run() {
	p.mu.Lock()
	for {
		job, k, costly := p.take()
		for job == nil {
			if p.closed {
				// The goroutines that run other jobs of the same kinds will run
				// the jobs that still wait.
				p.mu.Unlock()
				return
			}
			p.idle++
			p.changed.Wait()
			job, k, costly = p.take()
		}
		p.mu.Unlock()
		job()
		p.mu.Lock()
		if costly {
			p.costly--
		}
		if k.working--; k.working == 0 && !k.isWaiting() {
			delete(p.kinds, k.name)
		}
		if p.idle > 0 && len(p.turns) > 0 { // the end of this job may allow another job of the same kind
			p.idle--
			p.changed.Signal()
		}
	}
}

// Close waits until all queued jobs are done.
func (p *loaderPool) Close() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	p.all.Wait()
}
