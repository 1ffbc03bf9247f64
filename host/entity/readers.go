package entity

import "sync"

// readers are a lane's loaders: goroutines that read what the lane asks for. A
// goroutine is started when all are at work, up to a bound, and stays until
// close, for one that has read before has the stack it needs. What is asked
// for beyond that waits; it is as much as the lane's shards have requests, at
// most.
type readers struct {
	most int
	all  sync.WaitGroup

	mu      sync.Mutex
	more    sync.Cond // with mu: waiting or closed has changed
	waiting []func()
	started int
	idle    int // that wait for more and are not told yet
	closed  bool
}

func (p *readers) start(most int) {
	p.most, p.more.L = most, &p.mu
}

// do has a job done; it never blocks.
func (p *readers) do(job func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, job)
	switch {
	case p.idle > 0:
		p.idle--
		p.more.Signal()
	case p.started < p.most:
		p.started++
		p.all.Go(p.run)
	}
}

func (p *readers) run() {
	p.mu.Lock()
	for {
		for len(p.waiting) == 0 {
			if p.closed {
				p.mu.Unlock()
				return
			}
			p.idle++
			p.more.Wait()
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

// close waits until all that was asked for is done.
func (p *readers) close() {
	p.mu.Lock()
	p.closed = true
	p.more.Broadcast()
	p.mu.Unlock()
	p.all.Wait()
}

// start has a history read.
func (l *Lane) start(ld *load) {
	l.reads.do(func() {
		if ld.ctx.Err() != nil {
			return
		}
		first := 2 // chunks that may be under way before the lane has taken one
		ld.read(l.core.opts.Histories, l.core.opts.LoadChunkBytes, func(ch *loadChunk) error {
			if first > 0 {
				first--
			} else {
				select {
				case <-ld.credit:
				case <-ld.ctx.Done():
					return ld.ctx.Err()
				}
			}
			l.put(event{kind: evChunk, chunk: ch})
			return nil
		})
	})
}

// lookUp reads a number like start reads a history.
func (l *Lane) lookUp(q *inquiry) {
	l.read(func() event {
		q.read(l.scans, l.core.opts.Histories)
		return event{kind: evAnswered, ask: q}
	})
}

// scan reads due timers like start reads a history.
func (l *Lane) scan(t *timerScan) {
	l.read(func() event {
		t.read(l.scans, l.core.opts.Histories)
		return event{kind: evTimers, scan: t}
	})
}

// living reads the ids of entities in the same way.
func (l *Lane) living(s *livingScan) {
	l.read(func() event {
		s.read(l.scans, l.core.opts.Living)
		return event{kind: evLiving, living: s}
	})
}

func (l *Lane) read(do func() event) {
	l.reads.do(func() {
		if l.scans.Err() == nil {
			l.put(do())
		}
	})
}
