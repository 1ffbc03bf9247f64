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

// uploaded is a module of somebody.
func uploaded(n byte, by string) meta.Module {
	m := module(n, "a")
	m.Uploader = by
	return m
}

func TestModulesAreRemoved(t *testing.T) {
	s := created(t, meta.PutModule(module(1, "a")))
	refused(t, s, meta.ErrLevel, meta.RemoveModule(digest(1)))
	refused(t, s, meta.ErrLevel, meta.PutModule(uploaded(2, "token:ci")))
	s = level2(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2))
	refused(t, s, meta.ErrConflict, meta.RemoveModule(digest(2))) // it serves
	refused(t, s, meta.ErrConflict, meta.RemoveModule(digest(1))) // a rollback comes back to it
	if r := run(t, s, meta.RemoveModule(digest(3))); !r.Changed {
		t.Error("a module that nothing needs stays")
	}
	if r := run(t, s, meta.RemoveModule(digest(3))); r.Changed {
		t.Error("a module that is gone is removed again")
	}
	if _, known := s.View().Module(digest(3)); known {
		t.Error("the module is there")
	}
	refused(t, s, meta.ErrUnknownModule, meta.Bind("a", digest(3), 3))
	run(t, s, meta.Rollback("a", 4), meta.RemoveModule(digest(2))) // nothing comes back to it now
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) || len(loaded.View().Modules()) != 1 {
		t.Errorf("loaded: %v", err)
	}
	run(t, s, meta.PutModule(module(3, "a")))
}

func TestModulesAreBounded(t *testing.T) {
	s := level2(t)
	for i := range meta.MaxUploaderModules {
		run(t, s, meta.PutModule(uploaded(byte(i), "token:ci")))
	}
	refused(t, s, meta.ErrQuota, meta.PutModule(uploaded(200, "token:ci")))
	run(t, s, meta.PutModule(uploaded(3, "token:ci"))) // it is there already
	run(t, s, meta.PutModule(uploaded(200, "token:other")), meta.PutModule(uploaded(201, "")))
	run(t, s, meta.RemoveModule(digest(0)), meta.PutModule(uploaded(202, "token:ci")))
	large := uploaded(210, "token:other")
	large.Size = meta.MaxModuleBytes
	refused(t, s, meta.ErrQuota, meta.PutModule(large))
	large.Size -= 200 * (meta.MaxUploaderModules + 2)
	run(t, s, meta.PutModule(large))
}
