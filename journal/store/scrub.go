package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/hostd/hostd/journal"
)

// ScrubOptions configure Scrub.
type ScrubOptions struct {
	// BytesPerSecond is the rate at which table files are read, at least
	// MinScrubRate. A MiB takes 3.5 ms of processor time, so 2 MiB/s use 0.7%
	// of a core. A table is in memory while it is read, so a table of any size
	// is read within 8 s, and a longer pause after a large table keeps the
	// rate.
	BytesPerSecond int64
	// Every is the minimum time between the starts of two passes. Default one
	// minute.
	Every time.Duration
	// Damaged is called with damage, each time a pass finds it: a *DamageError
	// that names the table. Any row of the store may be affected. Damaged may
	// block. Required.
	Damaged func(err error)
}

// MinScrubRate is the lowest rate of Scrub.
const MinScrubRate = 64 << 10

const (
	// scrubTable bounds the time for which a table is in memory.
	scrubTable = 8 * time.Second
	// scrubKept is the largest buffer that is kept for the next table.
	scrubKept = 32 << 20
)

// Validate returns every problem with the options.
func (o ScrubOptions) Validate() error {
	var errs []error
	if o.BytesPerSecond < MinScrubRate || o.BytesPerSecond > 1<<30 {
		errs = append(errs, fmt.Errorf("scrub rate: must be between %[2]d and %[3]d bytes a second, got %[1]d", o.BytesPerSecond, MinScrubRate, 1<<30))
	}
	if o.Every < 0 || o.Damaged == nil {
		errs = append(errs, errors.New("scrub: Damaged is required and Every must not be negative"))
	}
	return errors.Join(errs...)
}

// ScrubStats counts the work of Scrub since Open.
type ScrubStats struct {
	Passes  uint64 // passes completed
	Bytes   uint64 // bytes of table files verified
	Damaged uint64 // damaged tables, counted each time damage is found
}

// scrubbed holds the counters of ScrubStats.
type scrubbed struct{ passes, bytes, damaged atomic.Uint64 }

// ScrubStats returns the counters of Scrub since Open.
func (s *Store) ScrubStats() ScrubStats {
	return ScrubStats{Passes: s.scrubbed.passes.Load(), Bytes: s.scrubbed.bytes.Load(), Damaged: s.scrubbed.damaged.Load()}
}

// Scrub repeatedly reads the files of all tables at a low rate until ctx ends,
// and verifies every block and value as Open does. It finds damage in data that
// is never read, but not data that a compaction has already dropped. Only one
// goroutine at a time may call Scrub on a store, and the call must end before
// Close.
func (s *Store) Scrub(ctx context.Context, o ScrubOptions) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("scrub: %w", err)
	}
	if o.Every == 0 {
		o.Every = time.Minute
	}
	p := &scrubber{st: s, opts: o}
	for {
		began := s.opts.Now()
		if p.tables(ctx) != nil {
			return nil
		}
		s.scrubbed.passes.Add(1)
		if p.until(ctx, began.Add(o.Every)) != nil {
			return nil
		}
	}
}

// scrubber is the state of one Scrub.
type scrubber struct {
	st   *Store
	opts ScrubOptions
	buf  []byte // of the file being read
}

// tables scrubs each table that exists when it starts. It returns an error only
// if ctx ends.
func (p *scrubber) tables(ctx context.Context) error {
	for _, info := range p.st.tables() {
		began := p.st.opts.Now()
		size, err := p.table(ctx, &info, began)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errReplaced):
		case errors.Is(err, journal.ErrDamaged):
			p.st.scrubbed.damaged.Add(1)
			p.opts.Damaged(err)
		case err != nil:
			p.st.opts.Logger.Warn("cannot scrub a table", "error", err)
		default:
			p.st.scrubbed.bytes.Add(uint64(size))
		}
		if err := p.until(ctx, began.Add(p.span(size))); err != nil {
			return err
		}
	}
	return nil
}

// errReplaced: a compaction has replaced the table during the read, so its file
// may be truncated or removed.
var errReplaced = errors.New("the table was replaced by a compaction")

// table reads and verifies one table.
func (p *scrubber) table(ctx context.Context, info *badger.TableInfo, began time.Time) (size int64, err error) {
	r := reading{buf: p.buf, rest: func(part float64) error {
		return p.until(ctx, began.Add(time.Duration(part*float64(min(p.span(size), scrubTable)))))
	}}
	r.sized = func(n int64) { size = n }
	f, err := p.st.readTable(info, &r)
	if err == nil {
		err = f.verify(r.rest)
	}
	if p.buf = r.buf; cap(p.buf) > scrubKept {
		p.buf = nil
	}
	listed := func(t badger.TableInfo) bool { return t.ID == info.ID }
	if err != nil && !slices.ContainsFunc(p.st.tables(), listed) {
		return size, errReplaced
	}
	return size, err
}

// span returns the time that the given bytes need at the configured rate.
func (p *scrubber) span(bytes int64) time.Duration {
	return time.Duration(float64(bytes) / float64(p.opts.BytesPerSecond) * float64(time.Second))
}

// until waits until the given time. It returns an error only if ctx ends.
func (p *scrubber) until(ctx context.Context, at time.Time) error {
	if wait := at.Sub(p.st.opts.Now()); wait > 0 {
		select {
		case <-p.st.opts.After(wait):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
