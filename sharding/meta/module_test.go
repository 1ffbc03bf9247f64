package meta_test

import (
	"bytes"
	"testing"

	"github.com/hostd/hostd/sharding/meta"
)

// signed is the module with a signature of three bytes.
func signed(m meta.Module, n byte) meta.Module {
	m.Signature = bytes.Repeat([]byte{n}, 3)
	return m
}

func TestSignaturesAreOfLevel2(t *testing.T) {
	s := created(t)
	refused(t, s, meta.ErrLevel, meta.PutModule(signed(module(1, "a"), 1)))
	if len(s.View().Modules()) != 0 {
		t.Error("the module is kept without its signature")
	}
	run(t, s, meta.PutModule(module(1, "a")))
}

func TestSignaturesAreKept(t *testing.T) {
	s := level2(t, meta.PutModule(module(1, "a")))
	long := module(1, "a")
	long.Signature = make([]byte, meta.MaxSignatureBytes+1)
	refused(t, s, meta.ErrInvalid, meta.PutModule(long))
	later := signed(module(1, "a"), 7)
	later.Name, later.UploadedAt = "other", later.UploadedAt+1
	for i, c := range []struct {
		put     meta.Module
		changed bool
		want    byte
	}{
		{signed(module(1, "a"), 5), true, 5},
		{signed(module(1, "a"), 5), false, 5},
		{module(1, "a"), false, 5}, // that is not to take it away
		{later, true, 7},
	} {
		r := run(t, s, meta.PutModule(c.put))
		if m, _ := s.View().Module(digest(1)); r.Changed != c.changed || !bytes.Equal(m.Signature, bytes.Repeat([]byte{c.want}, 3)) || m.Name != module(1, "a").Name || m.UploadedAt != module(1, "a").UploadedAt {
			t.Errorf("%d: changed %v, %+v", i, r.Changed, m)
		}
	}
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) {
		t.Errorf("loaded: %v", err)
	}
}
