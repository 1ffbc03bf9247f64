package cluster

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hostd/hostd/host/peer"
)

// Bounds for modules that other nodes store here. Memory is allocated as bytes
// arrive, not by the announced size, which the sender could choose at will.
const (
	firstBlobBytes   = 256 << 10
	maxArrivingBytes = 2 * peer.MaxBlobBytes // limit for all arriving modules together
)

// errManyBlobs rejects a module before more of it is read. The sender retries.
var errManyBlobs = fmt.Errorf("%w: the node is already receiving %d bytes of modules", peer.ErrUnavailable, maxArrivingBytes)

// arriving counts the memory of arriving modules.
type arriving struct{ bytes atomic.Int64 }

// read reads r to its end. The memory stays charged until the caller calls
// done, which it must do after an error too.
func (a *arriving) read(r io.Reader) (blob []byte, done func(), err error) {
	taken := int64(0)
	done = func() { a.bytes.Add(-taken) }
	for err == nil {
		if len(blob) == cap(blob) {
			more := max(firstBlobBytes, 2*cap(blob))
			if a.bytes.Add(int64(more)) > maxArrivingBytes {
				a.bytes.Add(-int64(more))
				return nil, done, errManyBlobs
			}
			taken += int64(more)
			grown := make([]byte, len(blob), more)
			copy(grown, blob)
			a.bytes.Add(-int64(cap(blob)))
			taken -= int64(cap(blob))
			blob = grown
		}
		var n int
		n, err = r.Read(blob[len(blob):cap(blob)])
		blob = blob[:len(blob)+n]
	}
	if !errors.Is(err, io.EOF) {
		return nil, done, err
	}
	return blob, done, nil
}
