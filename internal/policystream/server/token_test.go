// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

// unsigned is a JWT with these claims.
func unsigned(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(payload)) + "." + encode([]byte("signature"))
}

// plausibleToken is one that only a review can refuse.
func plausibleToken(node string) string {
	return unsigned(fmt.Sprintf(`{"iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:coelan-system:coelan-agent",`+
		`"aud":["coelan-controller"],"exp":%d,"kubernetes.io":{"node":{"name":%q}}}`, time.Now().Add(time.Hour).Unix(), node))
}

func TestPlausible(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	const good = `{"iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:coelan-system:coelan-agent",` +
		`"aud":["coelan-controller"],"exp":1800003600,"kubernetes.io":{"node":{"name":"worker1"}}}`
	change := func(old, replacement string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the token", old)
		}
		return unsigned(strings.Replace(good, old, replacement, 1))
	}
	for name, tc := range map[string]struct {
		token string
		want  string // in the error; empty: there is none
	}{
		"agent":              {unsigned(good), ""},
		"one audience":       {change(`["coelan-controller"]`, `"coelan-controller"`), ""},
		"several audiences":  {change(`["coelan-controller"]`, `["x","coelan-controller"]`), ""},
		"controller":         {change("coelan-agent", "coelan-controller"), ""},
		"just expired":       {change("1800003600", "1799999000"), ""},
		"expired":            {change("1800003600", "1799990000"), "expired"},
		"no expiry":          {change(`"exp":1800003600,`, ""), "expired"},
		"for the API server": {change(`["coelan-controller"]`, `["https://kubernetes.default.svc"]`), "audience"},
		"no audience":        {change(`"aud":["coelan-controller"],`, ""), "audience"},
		"no issuer":          {change("https://kubernetes.default.svc", ""), "issuer"},
		"another account":    {change("coelan-agent", "default"), "agent"},
		"another namespace":  {change("coelan-system", "red"), "agent"},
		"no node":            {change(`{"name":"worker1"}`, "{}"), "node"},
		"garbage":            {"garbage", "JWT"},
		"two parts":          {"a.b", "JWT"},
		"no signature":       {strings.TrimSuffix(unsigned(good), "c2lnbmF0dXJl"), "JWT"},
		"not base64":         {"a.!.c", "JWT"},
		"not JSON":           {unsigned("claims"), "JWT"},
		"an array":           {unsigned("[]"), "JWT"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parseToken(tc.token)
			if err == nil {
				err = c.plausible("coelan-system", now)
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzToken(f *testing.F) {
	f.Add(plausibleToken("a"))
	f.Add("a.e30.c")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := parseToken(token)
		if err == nil && strings.Count(token, ".") != tokenParts-1 {
			t.Errorf("%q is taken for a JWT: %+v", token, c)
		}
	})
}
