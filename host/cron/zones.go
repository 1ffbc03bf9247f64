package cron

import (
	"archive/zip"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// zoneinfo has the files of lib/time/zoneinfo.zip of Go, the IANA time zone
// database 2025c, which is in the public domain. Go stores them, here they are
// compressed.
//
//go:embed zoneinfo.zip
var zoneinfo string

// zoneFiles returns the files of the database by zone name.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic(err) // impossible: the archive is part of the program
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		files[f.Name] = f
	}
	return files
})

// zones caches the *time.Location of every requested zone by name. Only
// existing zones are added, of which there are some hundreds.
var zones sync.Map

// Zone returns a time zone by its IANA name; "" is UTC. It knows only the zones
// in the embedded database, so that all nodes of a release accept the same
// names: time.LoadLocation would read files of the machine, and files named
// by ZONEINFO. The error wraps errZone.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	if len(name) > maxZoneBytes {
		return nil, fmt.Errorf("%w: the name of a time zone has more than %d bytes", errZone, maxZoneBytes)
	}
	f := zoneFiles()[name]
	if f == nil {
		return nil, fmt.Errorf("%w: %q", errZone, name)
	}
	loc, err := load(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", errZone, name, err)
	}
	zones.Store(name, loc)
	return loc, nil
}

func load(f *zip.File) (*time.Location, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(f.Name, data)
}
