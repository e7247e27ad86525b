// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       int
		wrong      string
	}{
		{"one", "AAECAwQFBgcICQoLDA0ODw==", 1, ""},
		{"several, with empty lines", "\nAAECAwQFBgcICQoLDA0ODw==\n\n Dw4NDAsKCQgHBgUEAwIBAA==\n", 2, ""},
		{"not base64", "AAECAwQFBgcICQoLDA0ODw==\nsecret!\n", 0, "line 2: not base64"},
		{"too short", "AAEC", 0, "line 1: 3 bytes; a key has 16, 24 or 32"},
		{"none", "\n", 0, "no key"},
		{"too many", strings.Repeat("AAECAwQFBgcICQoLDA0ODw==\n", maxKeys+1), 0, "more than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keys, err := Parse([]byte(tc.text))
			if len(keys) != tc.want || (err == nil) != (tc.wrong == "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%d keys, %v; want %d, %q", len(keys), err, tc.want, tc.wrong)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("AAECAwQFBgcICQoLDA0ODw==\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(Format(keys))
		if err != nil || !cmp.Equal(keys, again) {
			t.Errorf("%x are %x when they are read again, %v", keys, again, err)
		}
	})
}

// At no step of a rotation is there a key by which one agent encrypts and another, a step ahead or
// behind, does not decrypt.
func TestRotation(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r, again, err := Rotate(Rotation{}, now)
	if err != nil || len(r.Keys) != 1 || !again.Equal(now.Add(Lifetime)) {
		t.Fatalf("%d keys, again %v, %v", len(r.Keys), again, err)
	}
	first := r.Keys[0]
	var phases []Phase
	for range 6 {
		if early, due, err := Rotate(r, again.Add(-time.Second)); err != nil || !cmp.Equal(early, r) || !due.Equal(again) {
			t.Errorf("a second before it is due, %+v becomes %+v, %v, %v", r, early, due, err)
		}
		next, due, err := Rotate(r, again)
		if err != nil {
			t.Fatal(err)
		}
		contains := func(keys [][]byte, key []byte) bool {
			for _, k := range keys {
				if bytes.Equal(k, key) {
					return true
				}
			}
			return false
		}
		if !contains(next.Keys, r.Keys[0]) || !contains(r.Keys, next.Keys[0]) {
			t.Errorf("agents before and after the step to %s do not understand each other", next.Phase)
		}
		if due.Sub(again) < Delay {
			t.Errorf("the next step comes %v after the one to %s", due.Sub(again), next.Phase)
		}
		phases = append(phases, next.Phase)
		r, again = next, due
	}
	if diff := cmp.Diff([]Phase{Added, Used, Steady, Added, Used, Steady}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if len(r.Keys) != 1 || bytes.Equal(r.Keys[0], first) {
		t.Errorf("after two rotations the keys are %x, at first %x", r.Keys, first)
	}
}

// Keys that were made by hand stay, and are replaced like others.
func TestRotationOfSeveralKeys(t *testing.T) {
	now := time.Now()
	a, b := bytes.Repeat([]byte{1}, keySize), bytes.Repeat([]byte{2}, keySize)
	r := Rotation{Keys: [][]byte{a, b}, Phase: Steady, Changed: now.Add(-Lifetime)}
	r, again, err := Rotate(r, now)
	if err != nil || len(r.Keys) != 3 || !bytes.Equal(r.Keys[0], a) || !bytes.Equal(r.Keys[1], b) {
		t.Fatalf("%+v, %v", r, err)
	}
	fresh := r.Keys[2]
	if r, again, err = Rotate(r, again); err != nil || !cmp.Equal(r.Keys, [][]byte{fresh, a, b}) {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, _, err = Rotate(r, again); err != nil || !cmp.Equal(r.Keys, [][]byte{fresh}) {
		t.Fatalf("%+v, %v", r, err)
	}
}

// A clock that was ahead when the last step was written does not put off the next
// one beyond its time.
func TestRotationAfterAWrongClock(t *testing.T) {
	now := time.Now()
	r := Rotation{Keys: [][]byte{make([]byte, keySize)}, Phase: Steady, Changed: now.Add(10 * Lifetime)}
	if _, again, err := Rotate(r, now); err != nil || again.After(now.Add(Lifetime)) {
		t.Errorf("the next step is at %v, %v", again, err)
	}
}
