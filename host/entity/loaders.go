package entity

import "sync"

// loaderPool is an executor's loaders. A goroutine is started when all are at work, up to
// a bound, and stays until Close, for one that has read before has the stack it
// needs. What is asked for beyond that waits; it is as much as the executor's
// shards have requests, at most.
type loaderPool struct {
	most int
	all  sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond // with mu: waiting or closed has changed
	waiting []func()
	started int
	idle    int // that wait for more and are not told yet
	closed  bool
}

// newLoaderPool returns a pool of at most so many goroutines.
func newLoaderPool(most int) *loaderPool {
	p := &loaderPool{most: most}
	p.changed.L = &p.mu
	return p
}

// Do has a job done; it never blocks.
func (p *loaderPool) Do(job func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, job)
	switch {
	case p.idle > 0:
		p.idle--
		p.changed.Signal()
	case p.started < p.most:
		p.started++
		p.all.Go(p.run)
	}
}

func (p *loaderPool) run() {
	p.mu.Lock()
	for {
		for len(p.waiting) == 0 {
			if p.closed {
				p.mu.Unlock()
				return
			}
			p.idle++
			p.changed.Wait()
		}
		job := p.waiting[0]
		p.waiting[0] = nil
		if p.waiting = p.waiting[1:]; len(p.waiting) == 0 {
			p.waiting = nil
		}
		p.mu.Unlock()
		job()
		p.mu.Lock()
	}
}

// Close waits until all that was asked for is done.
func (p *loaderPool) Close() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	p.all.Wait()
}
