// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"
)

const name = "coelan-controller.coelan-system.svc"

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func renew(t *testing.T, b Bundle, now time.Time) (Bundle, time.Time) {
	t.Helper()
	r, again, err := Renew(b, name, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Server(name, now); err != nil {
		t.Fatalf("at %s: %v", now, err)
	}
	if !again.After(now) {
		t.Errorf("at %s it is to be looked at again at %s", now, again)
	}
	return r, again
}

func TestNewBundle(t *testing.T) {
	b, again := renew(t, Bundle{}, start)
	if same, _ := renew(t, b, again.Add(-time.Second)); !bytes.Equal(same.Cert, b.Cert) || !bytes.Equal(same.Roots, b.Roots) {
		t.Error("what is good was made anew")
	}
	if _, err := b.Server("coelan-controller.elsewhere.svc", start); err == nil {
		t.Error("the certificate is good for another name")
	}
	if _, err := b.Server(name, start.Add(serverLifetime+time.Hour)); err == nil {
		t.Error("the certificate never ends")
	}
}

// An agent that has read the roots at any time knows the servers of the next months.
func TestThirtyYears(t *testing.T) {
	b, again := renew(t, Bundle{}, start)
	authorities := map[string]bool{string(b.AuthorityKey): true}
	for end := start.AddDate(30, 0, 0); again.Before(end); {
		before, now := b, again.Add(time.Second)
		b, again = renew(t, b, now)
		if bytes.Equal(b.Cert, before.Cert) {
			t.Fatalf("at %s nothing was renewed", now)
		}
		authorities[string(b.AuthorityKey)] = true
		old := before
		old.Roots = b.Roots
		if _, err := old.Server(name, now); err != nil {
			t.Errorf("at %s, who has the new roots does not know a server that has the old certificate: %v", now, err)
		}
	}
	if len(authorities) < 3 || len(authorities) > 4 {
		t.Errorf("%d authorities in 30 years", len(authorities))
	}
	if roots, err := parseAll(b.Roots); err != nil || len(roots) > 2 {
		t.Errorf("%d roots, of which most are past: %v", len(roots), err)
	}
}

func TestDamagedBundles(t *testing.T) {
	good, _ := renew(t, Bundle{}, start)
	other, _ := renew(t, Bundle{}, start)
	for what, damage := range map[string]func(*Bundle){
		"no roots":          func(b *Bundle) { b.Roots = nil },
		"garbage as roots":  func(b *Bundle) { b.Roots = []byte("garbage") },
		"half a root":       func(b *Bundle) { b.Roots = b.Roots[:100] },
		"no authority key":  func(b *Bundle) { b.AuthorityKey = nil },
		"garbage as key":    func(b *Bundle) { b.AuthorityKey = []byte("garbage") },
		"another's key":     func(b *Bundle) { b.AuthorityKey = other.AuthorityKey },
		"no server":         func(b *Bundle) { b.Cert, b.Key = nil, nil },
		"another's server":  func(b *Bundle) { b.Cert, b.Key = other.Cert, other.Key },
		"another's cert":    func(b *Bundle) { b.Cert = other.Cert },
		"the server's root": func(b *Bundle) { b.Roots = b.Cert },
	} {
		t.Run(what, func(t *testing.T) {
			b := good
			damage(&b)
			r, _ := renew(t, b, start.Add(time.Minute))
			if bytes.Equal(r.Cert, good.Cert) && bytes.Equal(r.Key, good.Key) && bytes.Equal(r.Roots, good.Roots) && bytes.Equal(r.AuthorityKey, good.AuthorityKey) {
				t.Error("nothing was repaired")
			}
		})
	}
}

func verify(t *testing.T, roots string) x509.VerifyOptions {
	t.Helper()
	pool, err := Pool([]byte(roots))
	if err != nil {
		t.Fatal(err)
	}
	return x509.VerifyOptions{Roots: pool, DNSName: name}
}
