// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"encoding/json"
	"reflect"
	"strings"
)

// formatVersion is the version of the journal's layout. A release refuses a file with a higher one,
// so a new kind of entry or a new field takes no new version: see Skip.
const formatVersion = 1

// change is one entry of the journal; one of its kinds is set.
//
// Releases read each other's files, older ones those of newer ones too, so that a node can go back:
//   - A new field of an attachment is ignored by a release that does not know it, and kept when
//     that release writes the file anew.
//   - A new kind of entry says by Skip what a release does that does not know it.
//   - What a release must not ignore is a new kind of entry without Skip. Then there is no way back
//     but to drain the node.
//
// The first release knows neither Skip nor kept fields: it refuses each entry of another kind, and
// drops fields that it does not know when it writes the file anew. It keeps objects of all kinds,
// see SaveObjects.
type change struct {
	Format  int         `json:"format,omitempty"`  // first entry of a file
	Cursors *cursors    `json:"cursors,omitempty"` // second
	Put     *Attachment `json:"put,omitempty"`
	Delete  *Key        `json:"delete,omitempty"`
	Save    *object     `json:"save,omitempty"`   // a node
	Forget  string      `json:"forget,omitempty"` // a node's name

	SaveObject   *object `json:"saveObject,omitempty"` // of any other kind
	ForgetObject *object `json:"forgetObject,omitempty"`

	// Skip is of use to a release that does not know the entry's kind.
	Skip skip `json:"skip,omitempty"`
	// unknown are the fields of Put that this release does not know, or, if none of the kinds is
	// set, the whole entry without Skip.
	unknown fields
}

type object struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
	Data []byte `json:"data,omitempty"`
}

// skip says what a release does with an entry of a kind that it does not know. Any other value
// makes the file a *NewerError.
type skip string

const (
	// skipKeep: the entry has no effect, and is kept for a newer release. Such entries keep
	// their order, and come after all others when the file is rewritten: what they refer
	// to may be gone.
	skipKeep skip = "keep"
	// skipDrop: the entry has no effect, and is not in the file any more when that is rewritten.
	skipDrop skip = "drop"
)

// fields are those of a JSON object.
type fields map[string]json.RawMessage

// The names of the fields that this release knows.
var (
	changeNames     = namesOf(reflect.TypeFor[change]())
	attachmentNames = namesOf(reflect.TypeFor[Attachment]())
)

func namesOf(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names[name] = true
		}
	}
	return names
}

// unknownOf returns the fields of a JSON object that are not among names.
func unknownOf(data []byte, names map[string]bool) (fields, error) {
	var all fields
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for name := range all {
		if names[name] {
			delete(all, name)
		}
	}
	return all, nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *change) UnmarshalJSON(data []byte) error {
	type plain change
	err := json.Unmarshal(data, (*plain)(c))
	switch {
	case err != nil:
	case c.Put != nil:
		var entry struct {
			Put json.RawMessage `json:"put"`
		}
		if err = json.Unmarshal(data, &entry); err == nil {
			c.unknown, err = unknownOf(entry.Put, attachmentNames)
		}
	case !c.isKnown():
		c.unknown, err = unknownOf(data, changeNames)
	}
	return err
}

// isKnown reports whether one of the kinds is set that this release knows.
func (c *change) isKnown() bool {
	return c.Format != 0 || c.Cursors != nil || c.Put != nil || c.Delete != nil || c.Save != nil || c.Forget != "" ||
		c.SaveObject != nil || c.ForgetObject != nil
}

// MarshalJSON implements json.Marshaler.
func (c change) MarshalJSON() ([]byte, error) {
	type plain change
	if len(c.unknown) == 0 {
		return json.Marshal(plain(c))
	}
	if c.Put == nil {
		return with(struct {
			Skip skip `json:"skip"`
		}{c.Skip}, c.unknown)
	}
	put, err := with(c.Put, c.unknown)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]json.RawMessage{"put": put})
}

// with encodes an object and adds fields to it.
func with(object any, more fields) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	all := fields{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for name, value := range more {
		all[name] = value
	}
	return json.Marshal(all)
}
