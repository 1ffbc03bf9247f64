package entity

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/request"
)

// adding returns a type with the command "add". If formed is set, the command
// has the schema that the SDK derives for the counter; otherwise it has no
// schema.
func adding(t testing.TB, formed bool) (*Type, *request.Request) {
	t.Helper()
	s, err := schema.Compile([]byte(`{"type":["object","null"],"additionalProperties":false,"properties":{"amount":{"type":["integer","string"],"format":"int64","description":"what is added, which may be below 0"}}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	typ := &Type{TypeInputs: TypeInputs{Commands: map[string]bool{"add": true}}}
	if formed {
		typ.Forms = PayloadForms{Commands: map[string]*schema.Schema{"add": s}}
	}
	return typ, &request.Request{Kind: request.Command, Name: "add", Payload: []byte(`{"amount":1}`)}
}

// TestCommandChecksDoNotAllocate checks that the check of a command's
// name and payload does not allocate, with or without a schema.
func TestCommandChecksDoNotAllocate(t *testing.T) {
	for _, formed := range []bool{false, true} {
		typ, r := adding(t, formed)
		if n := testing.AllocsPerRun(100, func() {
			if err := typ.RefusesCommand(r); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("with a schema %v: %v allocations", formed, n)
		}
	}
}

// BenchmarkRefusesCommand checks a command of the counter, without and with a
// schema. It also reports processor time, because other processes may run in
// the meantime.
func BenchmarkRefusesCommand(b *testing.B) {
	for _, formed := range []bool{false, true} {
		name := "without"
		if formed {
			name = "with"
		}
		b.Run(name, func(b *testing.B) {
			typ, r := adding(b, formed)
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				if err := typ.RefusesCommand(r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
