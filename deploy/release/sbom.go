package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes a CycloneDX document: the program of each pair, and the modules
// that were linked into it, as recorded in the program itself.
func (r *release) sbom() error {
	bom := cdx.NewBOM()
	sum := sha256.Sum256([]byte("hostd " + r.version + " " + r.commit))
	sum[6], sum[8] = sum[6]&0x0f|0x50, sum[8]&0x3f|0x80 // a version 5 UUID, so that two runs produce the same UUID
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	product := cdx.Component{
		BOMRef: "hostd", Type: cdx.ComponentTypeApplication, Name: "hostd", Version: r.version, PackageURL: "pkg:golang/github.com/hostd/hostd@" + r.version,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}
	bom.Metadata = &cdx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &product}
	var components []cdx.Component
	var dependencies []cdx.Dependency
	known := map[string]bool{}
	var all []string
	for _, pair := range r.pairs {
		info, err := buildinfo.ReadFile(r.programs[pair])
		if err != nil {
			return fmt.Errorf("read the modules of %s: %w", pair, err)
		}
		program, err := os.ReadFile(r.programs[pair])
		if err != nil {
			return err
		}
		uses := []string{}
		take := func(name, version, sum string) {
			ref := "pkg:golang/" + name + "@" + version
			uses = append(uses, ref)
			if known[ref] {
				return
			}
			known[ref] = true
			c := cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: ref}
			if sum != "" {
				c.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
			}
			components = append(components, c)
		}
		take("std", info.GoVersion, "")
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			take(m.Path, m.Version, m.Sum)
		}
		ref := "hostd-" + pair
		components = append(components, cdx.Component{
			BOMRef: ref, Type: cdx.ComponentTypeFile, Name: "hostd", Version: r.version, Description: "the program for " + pair,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(program))}},
		})
		all = append(all, ref)
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &uses})
	}
	dependencies = append(dependencies, cdx.Dependency{Ref: "hostd", Dependencies: &all})
	bom.Components, bom.Dependencies = &components, &dependencies
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	if err := encoder.Encode(bom); err != nil {
		return err
	}
	return r.write(fmt.Sprintf("hostd_%s.cdx.json", r.version), out.Bytes())
}
