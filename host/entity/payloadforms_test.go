package entity

import (
	"testing"

	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/request"
)

func counterType(tb testing.TB) (*Type, *request.Request) {
	tb.Helper()
	s, err := schema.Compile([]byte(`{"type":["object","null"],"properties":{"amount":{"type":["integer","string"],"format":"int64"}},"additionalProperties":false}`), nil)
	if err != nil {
		tb.Fatal(err)
	}
	t := &Type{TypeInputs: TypeInputs{Commands: map[string]bool{"add": true}, Forms: PayloadForms{Commands: map[string]*schema.Schema{"add": s}}}}
	return t, &request.Request{Name: "add", Payload: []byte(`{"amount":3}`)}
}

// TestPayloadChecksDoNotAllocate checks that payload checks allocate no memory.
func TestPayloadChecksDoNotAllocate(t *testing.T) {
	typ, r := counterType(t)
	if n := testing.AllocsPerRun(100, func() {
		if typ.RefusesCommand(r) != nil {
			t.Fatal("it does not fit")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCheck measures the schema check of a command of the counter.
func BenchmarkCheck(b *testing.B) {
	typ, r := counterType(b)
	b.ReportAllocs()
	for b.Loop() {
		if typ.RefusesCommand(r) != nil {
			b.Fatal("it does not fit")
		}
	}
}
