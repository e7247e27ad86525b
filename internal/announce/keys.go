// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/hashicorp/memberlist"
)

// readKeys reads the keys of a file; none if there is no file. A file that is wrong must not mean no encryption.
func readKeys(path string) ([][]byte, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keys of the membership: %w", err)
	}
	var keys [][]byte
	for i, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			return nil, fmt.Errorf("keys of the membership: %s, line %d: not base64", path, i+1)
		}
		if err := memberlist.ValidateKey(key); err != nil {
			return nil, fmt.Errorf("keys of the membership: %s, line %d: %d bytes; a key has 16, 24 or 32", path, i+1, len(key))
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("keys of the membership: %s has none", path)
	}
	return keys, nil
}
