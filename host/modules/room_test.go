package modules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/sharding/meta"
)

// TestFilesOutsideTheMetadataAreBounded checks that a node takes no more files
// of modules that the metadata does not have once they reach the quotas of
// bytes, and that neither known modules nor files that it has need room.
func TestFilesOutsideTheMetadataAreBounded(t *testing.T) {
	w := newSignedWorld(t, signing.Off)
	d := w.types.modules
	d.now = time.Now
	w.do(meta.PutSetting(meta.SettingModuleBytes, []byte("100")), meta.PutSetting(meta.SettingModuleUploaderBytes, []byte("50")))
	text := func(n int) []byte { return []byte(strings.Repeat(fmt.Sprint(n), 20)) }
	module := func(n int, by string) meta.Module {
		return meta.Module{Digest: meta.Digest(guest.DigestOf(text(n))), Size: 20, Name: "m", EntityTypes: []string{"a"}, UploadedAt: 2, Uploader: by}
	}
	var full *roomError
	for n := range 3 { // 60 bytes
		if _, err := d.put(t.Context(), module(n, "ann"), text(n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.put(t.Context(), module(3, "ann"), text(3)); !errors.As(err, &full) || !strings.Contains(err.Error(), "the uploader's") {
		t.Errorf("an uploader with 60 of 50 bytes: %v", err)
	}
	for n := 3; n < 5; n++ {
		if err := d.Put(t.Context(), text(n)); err != nil {
			t.Errorf("a file of another node: %v", err)
		}
	}
	if err := d.Put(t.Context(), text(5)); !errors.As(err, &full) || !errors.Is(err, peer.ErrUnavailable) || d.files.Has(guest.DigestOf(text(5))) {
		t.Errorf("a file of another node beyond the quota: %v", err)
	}
	if _, err := d.put(t.Context(), module(5, "bob"), text(5)); !errors.As(err, &full) {
		t.Errorf("an upload beyond the quota: %v", err)
	}
	if err := d.Put(t.Context(), text(4)); err != nil {
		t.Errorf("a file that is there: %v", err)
	}
	known := d.metadata.(*localMetadata)
	known.behind = func() error { w.do(meta.PutModule(module(0, "ann"))); known.behind = nil; return nil }
	if err := d.Put(t.Context(), text(5)); err != nil {
		t.Errorf("the metadata has one of the modules by now: %v", err)
	}
	if _, err := d.put(t.Context(), module(0, "ann"), text(0)); err != nil {
		t.Errorf("a known module: %v", err)
	}
}
