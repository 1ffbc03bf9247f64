package forward

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// appendResult appends an item of a ForwardResponse. failure is the encoded
// error if the result has one.
func appendResult(dst []byte, correlation uint64, res *request.Result, failure []byte) []byte {
	size := varintSize(correlation) + bytesSize(len(res.Payload)) + varintSize(uint64(res.Sequence)) +
		varintSize(uint64(res.EventCount)) + varintSize(bit(res.Duplicate)) + varintSize(res.Fuel)
	if res.Err != nil {
		size += 1 + protowire.SizeBytes(len(failure))
	}
	dst = protowire.AppendVarint(append(dst, tagItem), uint64(size))
	dst = appendVarint(dst, tagCorrelation, correlation)
	dst = appendBytes(dst, tagPayload, res.Payload)
	dst = appendVarint(dst, tagSequence, uint64(res.Sequence))
	dst = appendVarint(dst, tagEvents, uint64(res.EventCount))
	dst = appendVarint(dst, tagDuplicate, bit(res.Duplicate))
	if res.Err != nil {
		dst = protowire.AppendVarint(append(dst, tagError), uint64(len(failure)))
		dst = append(dst, failure...)
	}
	return appendVarint(dst, tagFuel, res.Fuel)
}

// resultSize returns an upper bound of the encoded size of an outcome.
func resultSize(res *request.Result, failure []byte) int {
	return 80 + len(res.Payload) + len(failure)
}

// result returns the outcome that an item describes. Its payload aliases the
// item's message.
func (a *wireResult) result() (request.Result, error) {
	if a.failed {
		failure, err := parseError(a.failure)
		return request.Result{Err: failure}, err
	}
	return request.Result{
		Payload: a.payload, Sequence: journal.Sequence(a.sequence), EventCount: int(a.events), Duplicate: a.duplicate,
		Fuel: a.fuel,
	}, nil
}
