package hostdtest

import (
	"testing"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// Benchmark measures one command natively, from input frames to output frames.
// All iterations run on one entity, whose state they change.
func Benchmark[S any](b *testing.B, typ *hostd.Type[S], command string, payload any) {
	b.Helper()
	d := New(b, typ)
	input := d.request(command, payload)
	input = abi.AppendCommandID(input, "3f2a9c4e-0000-4000-8000-000000000000")
	input = abi.AppendSeed(input, 1)
	input = abi.AppendSource(input, d.source)
	b.ReportAllocs()
	for b.Loop() {
		d.guest.Handle(live, input)
	}
}
