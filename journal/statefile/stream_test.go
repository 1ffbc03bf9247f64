package statefile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
)

var update = flag.Bool("rewrite", false, "rewrite the golden file")

// pairs is a source of n pairs with values of a given size.
type pairs struct {
	n, size, at int
	fail        error
	closed      bool
}

func (p *pairs) Next() (key, value []byte, err error) {
	if p.at == p.n {
		if p.fail != nil {
			return nil, nil, p.fail
		}
		return nil, nil, io.EOF
	}
	p.at++
	return fmt.Appendf(nil, "key%d", p.at), bytes.Repeat([]byte{byte(p.at)}, p.size), nil
}

func (p *pairs) Close() error { p.closed = true; return nil }

var testHeader = Header{Shard: 5, Index: 9, Term: 3}

func stream(t testing.TB, p *pairs) []byte {
	b, err := io.ReadAll(NewWriter(testHeader, p))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read reads a stream to its end.
func read(b []byte) (n int, bytes uint64, tail Trailer, err error) {
	return readFrom(strings.NewReader(string(b)))
}

func readFrom(from io.Reader) (n int, size uint64, tail Trailer, err error) {
	r, err := NewReader(from, nil)
	if err != nil {
		return 0, 0, tail, err
	}
	for {
		c, err := r.Next(n%2 == 0)
		if errors.Is(err, io.EOF) {
			return n, size, r.Trailer(), nil
		}
		if err != nil {
			return n, size, tail, err
		}
		err = c.Each(func(key, value []byte) error {
			n++
			if string(key) != fmt.Sprint("key", n) || len(value) > 0 && value[0] != byte(n) {
				return errors.New("another pair")
			}
			size += uint64(len(key) + len(value))
			return nil
		})
		if err != nil {
			return n, size, tail, err
		}
	}
}

func TestGoldenStream(t *testing.T) {
	got := stream(t, &pairs{n: 2, size: 3})
	if *update {
		if err := os.WriteFile("testdata/stream.hex", fmt.Appendf(nil, "%x\n", got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("testdata/stream.hex")
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("wrote\n%x\nwant\n%x %v", got, want, err)
	}
	if n, _, tail, err := read(want); err != nil || n != 2 || tail.Pairs != 2 || tail.Bytes != 14 {
		t.Errorf("read %d pairs, %+v, %v", n, tail, err)
	}
}

func TestStreamsRoundTrip(t *testing.T) {
	for _, p := range []pairs{{}, {n: 1}, {n: 3, size: 300 << 10}, {n: 50_000, size: 20}, {n: 2, size: MaxPairBytes - 4}} {
		want := p
		n, size, tail, err := read(stream(t, &p))
		if err != nil || n != want.n || tail.Pairs != uint64(n) || tail.Bytes != size {
			t.Errorf("%d pairs of %d bytes: read %d, %+v: %v", want.n, want.size, n, tail, err)
		}
	}
	if _, err := io.ReadAll(NewWriter(testHeader, &pairs{n: 1, size: MaxPairBytes})); err == nil {
		t.Error("a pair over the bound")
	}
}

// TestDamagedStreamsAreRejected flips each bit of a stream, truncates the
// stream at each length, and omits, repeats and swaps whole chunks. Each
// damaged stream is rejected.
func TestDamagedStreamsAreRejected(t *testing.T) {
	b := stream(t, &pairs{n: 3, size: 10})
	for i := range b {
		if _, _, _, err := read(b[:i]); !errors.Is(err, journal.ErrDamaged) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			if _, _, _, err := read(bad); !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, journal.ErrUnsupported) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
	}
	b = stream(t, &pairs{n: 40, size: 20 << 10})
	var chunks [][]byte
	for rest := b[headBytes:]; len(rest) > 0; {
		n := frameBytes + int(le.Uint32(rest))
		if n == frameBytes {
			n = tailBytes
		}
		chunks, rest = append(chunks, rest[:n]), rest[n:]
	}
	if len(chunks) < 4 {
		t.Fatalf("%d chunks", len(chunks))
	}
	for name, order := range map[string][]int{"left out": {0, 2, 3}, "repeated": {0, 0, 1, 2, 3}, "exchanged": {1, 0, 2, 3}} {
		bad := bytes.Clone(b[:headBytes])
		for _, i := range order {
			bad = append(bad, chunks[i]...)
		}
		if _, _, _, err := read(bad); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSourceErrorEndsTheStream(t *testing.T) {
	broken := errors.New("broken")
	p := &pairs{n: 3, fail: broken}
	w := NewWriter(testHeader, p)
	if _, _, _, err := readFrom(w); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if w.Close(); !p.closed {
		t.Error("the source was not closed")
	}
	if _, err := w.Read(make([]byte, 10)); err == nil {
		t.Error("a closed stream goes on")
	}
}

func FuzzReader(f *testing.F) {
	f.Add(stream(f, &pairs{n: 3, size: 10}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b), nil)
		for err == nil {
			_, err = r.Next(false)
		}
	})
}

func BenchmarkWriter(b *testing.B) {
	b.ReportAllocs()
	p := &pairs{n: b.N, size: 1000}
	b.SetBytes(1000)
	if _, err := io.Copy(io.Discard, NewWriter(testHeader, p)); err != nil {
		b.Fatal(err)
	}
}
