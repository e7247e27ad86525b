// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/policystream/wire"
)

// tokenSkew is how far the clocks of the controller and the API server may differ. The API server
// decides by its own.
const tokenSkew = time.Hour

// claims are those of a service account's token that are checked before it is reviewed.
type claims struct {
	Issuer     string   `json:"iss"`
	Subject    string   `json:"sub"`
	Audience   audience `json:"aud"`
	Expires    int64    `json:"exp"`
	Kubernetes struct {
		Node struct {
			Name string `json:"name"`
		} `json:"node"`
	} `json:"kubernetes.io"`
}

// audience is one string or several.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// parts of a signed JWT.
const tokenParts = 3

// parseToken reads the claims of a JWT. Nothing of them is verified.
func parseToken(token string) (claims, error) {
	var c claims
	parts := strings.Split(token, ".")
	if len(parts) != tokenParts || parts[0] == "" || parts[2] == "" {
		return c, errors.New("it is not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c, errors.New("it is not a JWT")
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, errors.New("it is not a JWT")
	}
	return c, nil
}

// plausible refuses a token that the API server would refuse, or that is of nothing that may call.
// What passes is not authenticated: anything can write such claims. Which issuer it is does not
// matter here: an API server accepts several while its administrator replaces one.
func (c claims) plausible(namespace string, now time.Time) error {
	account := "system:serviceaccount:" + namespace + ":"
	switch {
	case !slices.Contains(c.Audience, wire.Audience):
		return fmt.Errorf("it is not for the audience %s", wire.Audience)
	case c.Issuer == "":
		return errors.New("it has no issuer")
	case now.After(time.Unix(c.Expires, 0).Add(tokenSkew)):
		return errors.New("it has expired")
	case c.Subject == account+agentAccount && c.Kubernetes.Node.Name == "":
		return errors.New("it is not bound to a pod on a node")
	case c.Subject != account+agentAccount && c.Subject != account+controllerAccount:
		return errors.New("it is not of an agent or a controller")
	}
	return nil
}
