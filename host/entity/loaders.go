package entity

import "sync"

// loaderPool is the pool of an executor's loader goroutines. Do starts a
// goroutine, up to the limit, if all others are busy. Goroutines stay until
// Close, because their stacks have grown to the necessary size. Further jobs
// wait; there are at most as many as the executor's shards have requests.
type loaderPool struct {
	most int
	all  sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond // signals, with mu, that waiting or closed has changed
	waiting []func()
	started int
	idle    int // goroutines that wait for a job and were not signalled
	closed  bool
}

// newLoaderPool returns a pool of at most most goroutines.
func newLoaderPool(most int) *loaderPool {
	p := &loaderPool{most: most}
	p.changed.L = &p.mu
	return p
}

// Do queues a job. It never blocks.
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

// Close waits until all queued jobs are done.
func (p *loaderPool) Close() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	p.all.Wait()
}
