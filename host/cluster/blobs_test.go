package cluster

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/hostd/hostd/host/peer"
)

// The memory of arriving modules is bounded by the bytes that have arrived, and
// is released when the transfer of a module ends.
func TestArrivingModulesAreBounded(t *testing.T) {
	var a arriving
	for _, n := range []int{0, 1, firstBlobBytes - 1, firstBlobBytes, firstBlobBytes + 1, 5 << 20} {
		want := bytes.Repeat([]byte{byte(n)}, n)
		got, done, err := a.read(iotest.DataErrReader(bytes.NewReader(want)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
		if held := a.bytes.Load(); held < int64(n) || held > int64(max(2*n, 2*firstBlobBytes)) {
			t.Errorf("%d bytes hold %d", n, held)
		}
		done()
	}
	if _, done, err := a.read(iotest.ErrReader(io.ErrUnexpectedEOF)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a reader that fails: %v", err)
	} else {
		done()
	}
	var all []func()
	refused := false
	for range 40 {
		_, done, err := a.read(bytes.NewReader(make([]byte, 5<<20)))
		all = append(all, done)
		if refused = errors.Is(err, peer.ErrUnavailable); refused {
			break
		}
	}
	if held := a.bytes.Load(); !refused || held > maxArrivingBytes || held < maxArrivingBytes/2 {
		t.Errorf("refused %v, %d bytes are held", refused, held)
	}
	for _, done := range all {
		done()
	}
	if held := a.bytes.Load(); held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
}
