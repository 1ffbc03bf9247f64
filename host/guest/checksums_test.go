package guest

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// TestDamagedCacheFileIsRecompiled flips bits at many positions of a cached
// module. A damaged file must be compiled again and never be run. The runtime's
// own checksum covers only the code, and not the addresses at which its
// functions begin.
func TestDamagedCacheFileIsRecompiled(t *testing.T) {
	dir := t.TempDir()
	wasm := (&testGuest{}).build()
	use := func() string {
		t.Helper()
		var log bytes.Buffer
		t.Run("use", func(t *testing.T) {
			e := newEngine(t, Options{CacheDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if _, err := instantiate(t, mustCompile(t, e, wasm)).Handle(0, []byte("x"), Env{}); err != nil {
				t.Fatal(err)
			}
		})
		return log.String()
	}
	if log := use(); log != "" {
		t.Errorf("an empty cache makes the log say %q", log)
	}
	whole, err := os.ReadFile(cacheFiles(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	step := max(1, len(whole)/60)
	for at := 0; at < len(whole); at += step {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		if err := os.WriteFile(cacheFiles(t, dir)[0], damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if log := use(); !strings.Contains(log, "compilation cache is damaged") {
			t.Errorf("a flipped bit in byte %d of %d is not seen: the log says %q", at, len(whole), log)
		}
		if log := use(); log != "" {
			t.Errorf("the cache was not mended: the log says %q", log)
		}
	}
}

// TestUnknownCacheFilesAreRemoved checks that code in the cache that has no
// seal is never run.
func TestUnknownCacheFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	mustCompile(t, newEngine(t, Options{CacheDir: dir}), (&testGuest{}).build())
	for _, change := range []func() error{
		func() error { return os.Remove(dir + "/" + SealsName) },
		func() error { return os.WriteFile(dir+"/"+SealsName, []byte("no checksum\n\x00"), 0o600) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		e := newEngine(t, Options{CacheDir: dir})
		if files := cacheFiles(t, dir); len(files) != 0 {
			t.Errorf("the cache still holds %v", files)
		}
		mustCompile(t, e, (&testGuest{}).build())
		newEngine(t, Options{CacheDir: dir})
		if files := cacheFiles(t, dir); len(files) != 1 {
			t.Errorf("the cache holds %v", files)
		}
	}
}

// TestForeignCacheFilesAreRemoved checks that neither code nor the record of a
// passed trial is used if it was sealed with a different key.
func TestForeignCacheFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	mine, other := []byte("mine"), []byte("other")
	wasm := (&testGuest{}).build()
	mustCompile(t, newEngine(t, Options{CacheDir: dir, CacheKey: other}), wasm)
	before, err := os.Stat(cacheFiles(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, Options{CacheDir: dir, CacheKey: mine})
	if files := cacheFiles(t, dir); len(files) != 0 {
		t.Errorf("the cache still holds %v of %v", files, before)
	}
	mustCompile(t, e, wasm)
	newEngine(t, Options{CacheDir: dir, CacheKey: mine})
	if files := cacheFiles(t, dir); len(files) != 1 {
		t.Errorf("the cache holds %v", files)
	}
	for _, key := range [][]byte{mine, other} {
		c, err := openCompileCache(dir, key)
		if err != nil {
			t.Fatal(err)
		}
		if passed := c.HasPassed(wasm); passed {
			t.Errorf("it has passed with the key %s", key)
		}
		if err := c.Pass(wasm); err != nil || !c.HasPassed(wasm) {
			t.Errorf("it has not passed with the key %s: %v", key, err)
		}
	}
	c, err := openCompileCache(dir, mine)
	if err != nil || c.HasPassed(wasm) {
		t.Errorf("a record sealed with a different key counts, %v", err)
	}
}
