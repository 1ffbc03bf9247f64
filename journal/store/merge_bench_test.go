package store

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
)

// BenchmarkMerging measures the compaction cost of a realistic store: 1,000
// entities with many commands, and between them 100,000 others with two
// commands and a timer. It reports the processor time of the whole run and of
// the part in which the timers fire, and the cost of reads during that part.
func BenchmarkMerging(b *testing.B) {
	for b.Loop() {
		m := merging{B: b, rng: rand.New(rand.NewPCG(1, 2))}
		var err error
		if m.Store, err = Open(b.TempDir(), Options{}); err != nil {
			b.Fatal(err)
		}
		began := processor()
		m.busy(25, 23)
		m.alarms(1)
		m.settle()
		m.busy(25, 8)
		m.settle()
		before := processor()
		m.alarms(2)
		burst := processor() - before
		m.settle()
		b.ReportMetric(burst.Seconds(), "burst-CPU-s")
		b.ReportMetric((processor() - began).Seconds(), "CPU-s")
		m.read()
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

type merging struct {
	*testing.B
	*Store
	rng     *rand.Rand
	batch   Batch
	version uint64
	commits uint64
}

func processor() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// settle waits until no compaction runs.
func (m *merging) settle() {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		before := processor()
		if time.Sleep(300 * time.Millisecond); processor()-before < 15*time.Millisecond {
			return
		}
	}
}

func (m *merging) write() {
	m.version++
	if err := m.Write(&m.batch, m.version); err != nil {
		m.Fatal(err)
	}
	m.SetDiscard(m.version - 1)
	m.batch.Reset()
}

// body returns a body of which half is incompressible.
func (m *merging) body(n int) []byte {
	p := make([]byte, n)
	for i := 0; i < n; i += 2 {
		p[i] = byte(m.rng.Uint32())
	}
	return p
}

func (m *merging) key(class Class, n int, name string, rest ...byte) []byte {
	k := AppendPrefix(nil, sharding.ShardID(1+n%64), 1, class)
	if class == ClassDue {
		k = AppendDue(k, int64(n%1000))
	}
	k = AppendEntityID(k, sharding.EntityID{Type: "bench-" + name, ID: fmt.Sprintf("%s-%d", name, n)})
	return append(k, rest...)
}

// put adds records of an entity and its entity row.
func (m *merging) put(n int, name string, bytes int) {
	m.commits++
	m.batch.Put(m.key(ClassRecord, n, name, AppendIndex(AppendIndex(nil, m.commits), m.commits)...), m.body(bytes))
	m.batch.Put(m.key(ClassEntity, n, name), m.body(110))
}

// busy writes batches with the given number of records of each of 1,000
// entities.
func (m *merging) busy(batches, records int) {
	for range batches {
		for n := range 1000 {
			m.put(n, "counter", 150*records)
		}
		m.write()
	}
}

// alarms writes the first or the second record of each of 100,000 entities. The
// first sets a timer, and the second removes it while other entities are busy.
func (m *merging) alarms(nth int) {
	for n := range 100_000 {
		m.put(n, "alarm", 230)
		due := m.key(ClassDue, n, "alarm", []byte("ring")...)
		if nth == 1 {
			m.batch.Put(due, m.body(12))
		} else {
			m.batch.Delete(due)
		}
		if n%4000 == 3999 {
			if m.write(); nth == 2 {
				m.busy(1, 8)
			}
		}
	}
}

func (m *merging) read() {
	v, err := m.ViewAt(m.version)
	if err != nil {
		m.Fatal(err)
	}
	defer v.Close()
	const reads = 2000
	took := func(unit string, read func(n int) error) {
		before := processor()
		for range reads {
			if err := read(m.rng.IntN(100_000)); err != nil {
				m.Fatal(err)
			}
		}
		m.ReportMetric(float64((processor()-before).Microseconds())/reads, unit)
	}
	took("get-CPU-us", func(n int) error {
		found, err := v.Get(m.key(ClassEntity, n, "alarm"), func([]byte) error { return nil })
		if err == nil && !found {
			err = fmt.Errorf("no head of entity %d", n)
		}
		return err
	})
	took("scan-CPU-us", func(n int) error {
		records := 0
		err := v.Scan(m.key(ClassRecord, n, "alarm"), nil, func(_, _ []byte) error { records++; return nil })
		if err == nil && records != 2 {
			err = fmt.Errorf("%d records of entity %d", records, n)
		}
		return err
	})
	m.ReportMetric(float64(m.db.Levels()[0].NumTables), "tables-at-0")
}
