// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/wire"
)

// A file with a correct checksum may hold anything all the same.
func FuzzFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "policies.db")
	if err := client.Save(path, items(good)); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:len(data)-sha256.Size])
	f.Fuzz(func(t *testing.T, data []byte) {
		sum := sha256.Sum256(data)
		n, err := client.Parse(append(data, sum[:]...))
		if err != nil && n != 0 {
			t.Errorf("%d items of a file that is refused", n)
		}
	})
}

// No message makes a subject with a rule that is missing.
func FuzzUpdate(f *testing.F) {
	for _, m := range []*wire.Update{
		{Version: 1, Items: items(good)}, {Gone: []*wire.Key{wire.RuleID(rule.ID).Message()}, Unknown: make([]byte, wire.DigestSize)},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &wire.Update{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		c, err := client.Part(m)
		if err != nil {
			return
		}
		there := map[string]bool{}
		for _, r := range c.Rules {
			there[r.ID] = true
		}
		for _, s := range c.Subjects {
			for _, id := range s.Rules {
				if !there[id] {
					t.Errorf("%s has the rule %s, which is missing", s.Key, id)
				}
			}
		}
	})
}
