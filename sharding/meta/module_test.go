package meta_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding/meta"
)

// signed returns the module with a signature of three bytes.
func signed(m meta.Module, n byte) meta.Module {
	m.Signature = bytes.Repeat([]byte{n}, 3)
	return m
}

func TestSignaturesNeedVersion2(t *testing.T) {
	s := created(t)
	refused(t, s, meta.ErrClusterVersion, meta.PutModule(signed(module(1, "a"), 1)))
	if len(s.View().Modules()) != 0 {
		t.Error("the module is kept without its signature")
	}
	run(t, s, meta.PutModule(module(1, "a")))
}

func TestSignaturesAreStored(t *testing.T) {
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
		{module(1, "a"), false, 5}, // must not remove it
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

// uploaded returns a module with an uploader.
func uploaded(n byte, by string) meta.Module {
	m := module(n, "a")
	m.Uploader = by
	return m
}

func TestUnneededModulesCanBeRemoved(t *testing.T) {
	s := created(t, meta.PutModule(module(1, "a")))
	refused(t, s, meta.ErrClusterVersion, meta.RemoveModule(digest(1)))
	refused(t, s, meta.ErrClusterVersion, meta.PutModule(uploaded(2, "token:ci")))
	s = level2(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2))
	refused(t, s, meta.ErrConflict, meta.RemoveModule(digest(2))) // the module serves a type
	refused(t, s, meta.ErrConflict, meta.RemoveModule(digest(1))) // a rollback may return to it
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
	run(t, s, meta.Rollback("a", 4), meta.RemoveModule(digest(2))) // no rollback returns to it now
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) || len(loaded.View().Modules()) != 1 {
		t.Errorf("loaded: %v", err)
	}
	run(t, s, meta.PutModule(module(3, "a")))
}

func TestModulesAreBounded(t *testing.T) {
	s := level2(t)
	for i := range meta.DefaultModuleQuotas.OfOne {
		run(t, s, meta.PutModule(uploaded(byte(i), "token:ci")))
	}
	refused(t, s, meta.ErrQuota, meta.PutModule(uploaded(200, "token:ci")))
	run(t, s, meta.PutModule(uploaded(3, "token:ci"))) // it exists already
	run(t, s, meta.PutModule(uploaded(200, "token:other")), meta.PutModule(uploaded(201, "")))
	run(t, s, meta.RemoveModule(digest(0)), meta.PutModule(uploaded(202, "token:ci")))
	large := uploaded(210, "token:other")
	large.Size = meta.DefaultModuleQuotas.Bytes
	refused(t, s, meta.ErrQuota, meta.PutModule(large))
	large.Size -= int64(200 * (meta.DefaultModuleQuotas.OfOne + 2))
	run(t, s, meta.PutModule(large))
}

// One uploader of large modules leaves room for other uploaders. The limit
// applies from version 3 on and depends only on replicated state.
func TestUploaderBytesAreLimited(t *testing.T) {
	of := func(n byte, by string, size int64) []byte {
		m := uploaded(n, by)
		m.Size = size
		return meta.PutModule(m)
	}
	half := meta.DefaultModuleQuotas.BytesOfOne / 2
	earlier := level2(t, of(1, "token:ci", half), of(2, "token:ci", half))
	run(t, earlier, of(3, "token:ci", 1))

	s := meta.New()
	run(t, s, meta.CreateCluster(cluster, founder), meta.RaiseClusterVersion(3, speaker("n1", 0, 3)), of(1, "token:ci", half), of(2, "token:ci", half))
	if use := s.View().ModuleUse("token:ci"); use.BytesOfOne != 2*half || s.View().ModuleUse("token:other").BytesOfOne != 0 {
		t.Errorf("it has %+v", use)
	}
	_, result, _ := s.Apply(s.View().Index()+1, of(3, "token:ci", 1))
	if _, err := meta.DecodeResult(result); !errors.Is(err, meta.ErrQuota) || !strings.Contains(err.Error(), meta.SettingModuleUploaderBytes) {
		t.Errorf("past it: %v", err)
	}
	run(t, s, of(1, "token:ci", half)) // it exists already
	run(t, s, of(3, "token:other", half), of(4, "", half-1))
	run(t, s, meta.PutSetting(meta.SettingModuleUploaderBytes, []byte("1GiB")), meta.RemoveModule(digest(3)), of(5, "token:ci", 1))
	run(t, s, meta.PutSetting(meta.SettingModuleUploaderBytes, []byte("1KiB")), meta.RemoveModule(digest(5)))
	refused(t, s, meta.ErrQuota, of(6, "token:ci", 1))
	if n := len(s.View().Modules()); n != 3 {
		t.Errorf("a lower bound leaves %d modules", n)
	}
}

func TestModuleQuotasAreSettings(t *testing.T) {
	s := level2(t, meta.PutModule(uploaded(1, "token:ci")), meta.PutModule(uploaded(2, "token:ci")), meta.PutModule(uploaded(3, "token:other")))
	set := func(key, value string) {
		t.Helper()
		if err := meta.CheckModuleSetting(key, value); err != nil {
			t.Error(err)
		}
		run(t, s, meta.PutSetting(key, []byte(value)))
	}
	if got, want := s.View().ModuleUse("token:ci"), (meta.ModuleQuotas{Modules: 3, Bytes: 2 + 3 + 4, OfOne: 2, BytesOfOne: 2 + 3}); got != want {
		t.Errorf("there are %+v, want %+v", got, want)
	}
	if got := s.View().ModuleUse("").OfOne; got != 0 {
		t.Errorf("%d are of nobody", got)
	}
	// Each quota is lowered below the current use. All modules stay, and none can
	// be added.
	for _, c := range []struct {
		key, low, high string
		put            meta.Module
	}{
		{meta.SettingModuleCount, "2", "4", uploaded(4, "token:new")},
		{meta.SettingModuleBytes, "8", "1KiB", uploaded(5, "token:new")},
		{meta.SettingModuleUploader, "1", "3", uploaded(6, "token:ci")},
	} {
		set(c.key, c.low)
		refused(t, s, meta.ErrQuota, meta.PutModule(c.put))
		run(t, s, meta.PutModule(uploaded(1, "token:ci"))) // it exists already
		if n := len(s.View().Modules()); n != 3 {
			t.Errorf("%s: %d modules are left", c.key, n)
		}
		set(c.key, c.high)
		run(t, s, meta.PutModule(c.put), meta.RemoveModule(c.put.Digest))
	}
	if got, want := s.View().ModuleQuotas(), (meta.ModuleQuotas{Modules: 4, Bytes: 1 << 10, OfOne: 3, BytesOfOne: meta.DefaultModuleQuotas.BytesOfOne}); got != want {
		t.Errorf("the quotas are %+v, want %+v", got, want)
	}
	for _, key := range []string{meta.SettingModuleCount, meta.SettingModuleBytes, meta.SettingModuleUploader, meta.SettingModuleUploaderBytes} {
		for _, value := range []string{"", "0", "-1", "x", "1.5", "1GB", "99999999999999999999", "4097GiB", "off"} {
			if meta.CheckModuleSetting(key, value) == nil {
				t.Errorf("%s is %q", key, value)
			}
			run(t, s, meta.PutSetting(key, []byte(value)))
		}
	}
	if got := s.View().ModuleQuotas(); got != meta.DefaultModuleQuotas {
		t.Errorf("settings that say nothing make %+v", got)
	}
	set(meta.SettingModuleBytes, "1024GiB")
	huge := uploaded(9, "")
	huge.Size = 1<<63 - 1
	refused(t, s, meta.ErrQuota, meta.PutModule(huge))
}
