// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestMeant(t *testing.T) {
	for _, tc := range []struct{ namespace, name, want string }{
		{"", "", "shop/web shop/db other/web"},
		{"shop", "", "shop/web shop/db"},
		{"", "web", "shop/web other/web"},
		{"shop", "web", "shop/web"},
		{"", "other/web", "other/web"},
		{"shop", "other/web", "other/web"},
		{"nobody", "", ""},
	} {
		t.Run(fmt.Sprintf("%q in %q", tc.name, tc.namespace), func(t *testing.T) {
			var got, args []string
			if tc.name != "" {
				args = []string{tc.name}
			}
			for _, key := range []string{"shop/web", "shop/db", "other/web"} {
				if namespace, name, _ := strings.Cut(key, "/"); isMeant(namespace, name, tc.namespace, args) {
					got = append(got, key)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%v, want %s", got, tc.want)
			}
		})
	}
}
