package meta_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding/meta"
)

// since returns since when a module has been unused, and whether it exists.
func since(s *meta.State, n byte) (int64, bool) {
	m, known := s.View().Module(digest(n))
	return m.UnusedSince, known
}

func TestUnusedModulesAreCollected(t *testing.T) {
	const start, month = int64(1_000_000), int64(meta.DefaultModuleRetention)
	s := level2(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a", "b")), meta.PutModule(module(3, "a")), meta.PutModule(module(4, "a")),
		meta.Bind("a", digest(1), 1), meta.Bind("a", digest(2), 2), meta.Bind("b", digest(2), 3))
	collect := func(at int64, want ...byte) {
		t.Helper()
		stale := s.View().HasStaleModules(at)
		r := run(t, s, meta.CollectModules(at))
		if r.Changed != stale {
			t.Errorf("at %d: changed %v, stale %v", at, r.Changed, stale)
		}
		var digests []meta.Digest
		for _, n := range want {
			digests = append(digests, digest(n))
		}
		if !slices.Equal(r.Collected, digests) {
			t.Errorf("at %d these were collected: %v, want %v", at, r.Collected, digests)
		}
		for _, n := range want {
			if _, known := since(s, n); known {
				t.Errorf("module %d is there", n)
			}
		}
		if s.View().HasStaleModules(at) {
			t.Errorf("at %d there is more", at)
		}
	}
	collect(start) // marks modules 3 and 4
	collect(start + month - 1)
	for n, want := range map[byte]int64{1: 0, 2: 0, 3: start, 4: start} {
		if got, known := since(s, n); got != want || !known {
			t.Errorf("module %d is not needed since %d, want %d", n, got, want)
		}
	}
	// Pushing or binding a module again resets the mark.
	run(t, s, meta.PutModule(module(3, "a")))
	if got, _ := since(s, 3); got != 0 {
		t.Errorf("a module that was pushed again is not needed since %d", got)
	}
	collect(start+month, 4)
	if got, _ := since(s, 3); got != start+month {
		t.Errorf("a module that was pushed again is not needed since %d", got)
	}
	run(t, s, meta.Bind("b", digest(2), 4), meta.Rollback("a", 5)) // module 2 still serves b
	collect(start + 3*month/2)
	run(t, s, meta.Bind("a", digest(3), 6), meta.Rollback("a", 7))
	collect(start + 3*month) // needed until then, so its retention starts now
	if got, known := since(s, 3); got != start+3*month || !known {
		t.Errorf("a module that served is not needed since %d", got)
	}
	collect(start + month) // if the clock goes back, nothing is removed
	collect(start + 4*month - 1)
	collect(start+4*month, 3)
	// Modules that serve a type, or to which a rollback may return, are kept
	// forever.
	run(t, s, meta.Bind("a", digest(2), 8))
	collect(start + 1000*month)
	for n := range byte(2) {
		if _, known := since(s, n+1); !known {
			t.Errorf("module %d is gone, which is needed", n+1)
		}
	}
	loaded := meta.New()
	if err := loaded.Load(99, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) {
		t.Errorf("loaded: %v", err)
	}
}

// The module of a shadow setting is kept. Its retention starts when the setting
// is removed or names another module.
func TestShadowModulesAreKept(t *testing.T) {
	const month = int64(meta.DefaultModuleRetention)
	s := level2(t, meta.PutModule(module(1, "a")), meta.PutModule(module(2, "a")), meta.PutModule(module(3, "a")), meta.Bind("a", digest(1), 1), meta.CollectModules(1))
	shadow := func(n byte) []byte {
		return meta.PutSetting("entity.a.shadow", []byte(digest(n).String()+" 10%"))
	}
	kept := func(n byte, want int64) {
		t.Helper()
		if got, known := since(s, n); got != want || !known {
			t.Errorf("module %d is not needed since %d, want %d; it is there: %v", n, got, want, known)
		}
	}
	kept(2, 1)
	// These are not shadow settings.
	run(t, s, meta.PutSetting("entity.a.value.shadow", []byte(digest(3).String()+" 10%")), meta.PutSetting("a.shadow", []byte(digest(3).String())), meta.PutSetting("entity.b.shadow", []byte(digest(3).String()+" 0%")))
	run(t, s, shadow(2))
	kept(2, 0)
	kept(3, 1)
	run(t, s, meta.CollectModules(month))
	refused(t, s, meta.ErrConflict, meta.RemoveModule(digest(2)))
	if of, ok := s.View().ShadowedBy(digest(2)); of != "a" || !ok {
		t.Errorf("the module decides commands of %q too", of)
	}
	if r := run(t, s, meta.CollectModules(2*month)); !slices.Equal(r.Collected, []meta.Digest{digest(3)}) {
		t.Fatalf("%v was collected", r.Collected)
	}
	kept(2, 0)
	run(t, s, meta.PutModule(module(3, "a")), shadow(3), meta.CollectModules(3*month))
	kept(2, 3*month)
	run(t, s, shadow(2)) // its retention starts over
	kept(2, 0)
	run(t, s, meta.DeleteSetting("entity.a.shadow"), meta.CollectModules(4*month))
	kept(2, 4*month)
	run(t, s, meta.RemoveModule(digest(2)))
	loaded := meta.New()
	if err := loaded.Load(99, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) {
		t.Errorf("loaded: %v", err)
	}
}

func TestModuleRetentionIsASetting(t *testing.T) {
	s := level2(t, meta.PutModule(module(1, "a")), meta.CollectModules(1))
	for value, want := range map[string]time.Duration{
		"off": 0, "0": 0, "1s": time.Second, "36h": 36 * time.Hour, "1d": 24 * time.Hour, "90d": 90 * 24 * time.Hour,
		"": -1, "999ms": -1, "-1h": -1, "0d": -1, "4000d": -1, "d": -1, "+1d": -1, "1.5d": -1, "1d1h": -1, "70000d": -1, "on": -1,
	} {
		if err := meta.CheckModuleSetting(meta.SettingModuleRetention, value); (err == nil) != (want >= 0) {
			t.Errorf("%q: %v", value, err)
		}
		if want < 0 {
			want = meta.DefaultModuleRetention
		}
		run(t, s, meta.PutSetting(meta.SettingModuleRetention, []byte(value)))
		if got := s.View().ModuleRetention(); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
		if at := 1 + int64(want); s.View().HasStaleModules(at) != (want > 0) || want > 0 && s.View().HasStaleModules(at-1) {
			t.Errorf("%q: the module does not go after %v", value, want)
		}
	}
	if err := meta.CheckModuleSetting("other", "anything"); err != nil {
		t.Error(err)
	}
	run(t, s, meta.PutSetting(meta.SettingModuleRetention, []byte("off")))
	if r := run(t, s, meta.CollectModules(1<<62)); len(r.Collected) > 0 {
		t.Error("a module is collected that stays for ever")
	}
	run(t, s, meta.DeleteSetting(meta.SettingModuleRetention))
	if r := run(t, s, meta.CollectModules(1<<62)); len(r.Collected) != 1 {
		t.Error("the default is not as if nothing was set")
	}
}

func TestModulesAreCollectedAFewAtATime(t *testing.T) {
	s := level2(t)
	for i := range 150 {
		run(t, s, meta.PutModule(module(byte(i), "a")))
	}
	rounds := func(at int64) (n int) {
		for s.View().HasStaleModules(at) {
			run(t, s, meta.CollectModules(at))
			n++
		}
		return n
	}
	if marked, removed := rounds(1), rounds(1+int64(meta.DefaultModuleRetention)); marked != 3 || removed != 3 || len(s.View().Modules()) != 0 {
		t.Errorf("%d and %d commands, %d modules are left", marked, removed, len(s.View().Modules()))
	}
}

func TestCollectionNeedsVersion2(t *testing.T) {
	s := created(t, meta.PutModule(module(1, "a")))
	refused(t, s, meta.ErrClusterVersion, meta.CollectModules(1))
	refused(t, level2(t), meta.ErrInvalid, meta.CollectModules(0))
}

// Shadow settings are parsed in one place, and invalid settings define no
// shadow.
func TestShadowSettingsAreParsed(t *testing.T) {
	text := digest(2).String()
	for value, want := range map[string]uint32{text + " 10%": 1000, text + " 0.01%": 1, text + "  100%": 10_000, text + " 0.005%": 1} {
		if got, share, err := meta.ParseShadow(value); err != nil || got != digest(2) || share != want {
			t.Errorf("%q: %v, %d, %v", value, got, share, err)
		}
	}
	for value, says := range map[string]string{
		"": "is not DIGEST PERCENT%", text: "is not DIGEST PERCENT%", text + " 10": "is not DIGEST PERCENT%",
		text + " 0%": "from 0.01 to 100", text + " 101%": "from 0.01 to 100", text + " x%": "from 0.01 to 100", text + " NaN%": "from 0.01 to 100",
		text[2:] + " 10%": "is not the digest of a module", strings.ToUpper(strings.Repeat("a", 64)) + " 10%": "is not the digest of a module",
	} {
		if _, _, err := meta.ParseShadow(value); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", value, err, says)
		}
	}
	s := level2(t, meta.PutModule(module(2, "a")), meta.PutSetting("entity.a.shadow", []byte(text+" 10%")), meta.PutSetting("entity.b.shadow", []byte(text+" 0%")))
	if got, ok := meta.ShadowOf(s.View(), "a"); !ok || got.Digest != digest(2) || got.Share != 1000 || got.EntityType != "a" || got.Revision == 0 {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, entityType := range []string{"b", "c"} {
		if got, ok := meta.ShadowOf(s.View(), entityType); ok {
			t.Errorf("%s: %+v", entityType, got)
		}
	}
}
