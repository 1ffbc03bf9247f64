package wal

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/journal/disk"
)

// BenchmarkAppendSync measures the appends of one turn of the Raft loop on the
// disk of the temporary directory: a record and its sync. Every segment is
// released after the turn, so all files except the first few are recycled.
func BenchmarkAppendSync(b *testing.B) {
	for _, size := range []int{256, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			log, err := Open(disk.OS{}, b.TempDir(), Options{SegmentBytes: 8 << 20})
			if err != nil {
				b.Fatal(err)
			}
			defer log.Close()
			payload := make([]byte, size)
			turn := func() {
				if _, err := log.Append(2, payload); err != nil {
					b.Fatal(err)
				}
				if _, err := log.Sync(); err != nil {
					b.Fatal(err)
				}
			}
			for log.Stats().SegmentsRecycled < 2 {
				if _, err := log.Append(2, make([]byte, 3<<20)); err != nil {
					b.Fatal(err)
				}
				turn()
				if _, err := log.Release(log.Tail()); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				turn()
				if len(log.segments) > 1 {
					if _, err := log.Release(log.Tail()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkAppend measures encoding alone: 1,000 records into a batch.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 4 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			log := openBench(b)
			head, payload := make([]byte, 16), make([]byte, size-16)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := log.Append(2, head, payload); err != nil {
					b.Fatal(err)
				}
				if c := &log.pending[0]; len(c.buf) > 1000*size {
					// Reset the batch instead of writing it.
					c.buf, log.next.Offset = c.buf[:0], c.start
				}
			}
		})
	}
}

// BenchmarkReplay reads a log of 64 MiB in records of 1 KiB from the page
// cache.
func BenchmarkReplay(b *testing.B) {
	log := openBench(b)
	payload := make([]byte, 1024)
	for range 60 << 10 {
		if _, err := log.Append(2, payload); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := log.Sync(); err != nil {
		b.Fatal(err)
	}
	log.hasAppended = false
	b.SetBytes(60 << 20)
	b.ReportAllocs()
	for b.Loop() {
		records := 0
		if err := log.Replay(func(Position, byte, []byte) error { records++; return nil }); err != nil || records != 60<<10 {
			b.Fatal(records, err)
		}
	}
}

// BenchmarkOpen opens a log whose last segment of 64 MiB is empty, to measure
// the search for records after the tail.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	b.ReportAllocs()
	for b.Loop() {
		log, err := Open(disk.OS{}, dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		log.closeFiles()
	}
}

func openBench(b *testing.B) *Log {
	log, err := Open(disk.OS{}, b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	return log
}
