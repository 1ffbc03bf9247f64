package hostdtest

import (
	"bytes"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// request encodes the frames that commands and queries have in common.
func (d *Driver[S]) request(name string, payload any) []byte {
	d.t.Helper()
	input := abi.AppendSequence(nil, uint64(len(d.history)))
	input = abi.AppendName(input, name)
	input = abi.AppendPayload(input, d.encode(payload))
	if d.settings != nil {
		input = abi.AppendSettings(input, d.settings)
	}
	return abi.AppendNow(input, d.now.UnixNano())
}

func (d *Driver[S]) encode(value any) []byte {
	d.t.Helper()
	switch value := value.(type) {
	case nil:
		return nil
	case []byte:
		return value
	case hostd.RawJSON:
		return value
	}
	payload, err := d.typ.Encode(value)
	if err != nil {
		d.t.Fatalf("%T: %v", value, err)
	}
	return payload
}

func (d *Driver[S]) snapshot(handle int64) []byte { return bytes.Clone(d.guest.Snapshot(handle)) }

// reload rebuilds the entity from its history, in batches of random sizes.
func (d *Driver[S]) reload(handle int64) {
	d.t.Helper()
	d.load(handle, d.durable, d.version)
	for from := 0; from < len(d.history); {
		to := from + 1 + d.random.IntN(len(d.history)-from)
		var batch []byte
		for i := from; i < to; i++ {
			batch = abi.AppendInputEvent(batch, uint64(i+1), d.now.UnixNano(), d.history[i].typ, d.history[i].payload)
		}
		if status := d.guest.Apply(handle, batch); status != abi.ApplyDone {
			d.t.Fatalf("apply of events %d to %d failed: %q", from+1, to, d.lines)
		}
		from = to
	}
}

func (d *Driver[S]) load(handle int64, snapshot []byte, version uint64) {
	d.t.Helper()
	d.guest.Drop(handle)
	input := abi.AppendEntityID(nil, d.id)
	if snapshot != nil {
		input = abi.AppendSnapshot(input, snapshot)
		input = abi.AppendSequence(input, uint64(len(d.history)))
	}
	if version != 0 {
		input = abi.AppendStateVersion(input, version)
	}
	if status := d.guest.Load(0, handle, input); status != abi.LoadDone {
		d.t.Fatalf("load answers %d for the snapshot %s", status, snapshot)
	}
}
