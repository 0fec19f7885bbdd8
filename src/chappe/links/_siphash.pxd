"""SipHash-2-4 with 128 bits of output, the tag of datagrams; C, because a tag is computed for each of them."""

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define CHAPPE_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define CHAPPE_ROUND(v0, v1, v2, v3) do { \\
        v0 += v1; v1 = CHAPPE_ROTL(v1, 13); v1 ^= v0; v0 = CHAPPE_ROTL(v0, 32); \\
        v2 += v3; v3 = CHAPPE_ROTL(v3, 16); v3 ^= v2; \\
        v0 += v3; v3 = CHAPPE_ROTL(v3, 21); v3 ^= v0; \\
        v2 += v1; v1 = CHAPPE_ROTL(v1, 17); v1 ^= v2; v2 = CHAPPE_ROTL(v2, 32); \\
    } while (0)

    static inline uint64_t chappe_load_le(const unsigned char *p) {
        return (uint64_t) p[0] | (uint64_t) p[1] << 8 | (uint64_t) p[2] << 16 | (uint64_t) p[3] << 24
            | (uint64_t) p[4] << 32 | (uint64_t) p[5] << 40 | (uint64_t) p[6] << 48 | (uint64_t) p[7] << 56;
    }

    static inline void chappe_store_le(unsigned char *p, uint64_t x) {
        for (int i = 0; i < 8; i++) p[i] = (unsigned char) (x >> (8 * i));
    }

    static void chappe_siphash128(const unsigned char *key, const unsigned char *data, size_t size,
                                  unsigned char *tag) {
        uint64_t k0 = chappe_load_le(key), k1 = chappe_load_le(key + 8), m;
        uint64_t v0 = UINT64_C(0x736f6d6570736575) ^ k0, v1 = UINT64_C(0x646f72616e646f6d) ^ k1 ^ 0xee;
        uint64_t v2 = UINT64_C(0x6c7967656e657261) ^ k0, v3 = UINT64_C(0x7465646279746573) ^ k1;
        const unsigned char *end = data + (size & ~(size_t) 7);
        for (; data != end; data += 8) {
            m = chappe_load_le(data);
            v3 ^= m;
            CHAPPE_ROUND(v0, v1, v2, v3); CHAPPE_ROUND(v0, v1, v2, v3);
            v0 ^= m;
        }
        m = (uint64_t) (size & 0xff) << 56;
        for (size_t i = 0; i < (size & 7); i++) m |= (uint64_t) data[i] << (8 * i);
        v3 ^= m;
        CHAPPE_ROUND(v0, v1, v2, v3); CHAPPE_ROUND(v0, v1, v2, v3);
        v0 ^= m;
        v2 ^= 0xee;
        for (int i = 0; i < 4; i++) CHAPPE_ROUND(v0, v1, v2, v3);
        chappe_store_le(tag, v0 ^ v1 ^ v2 ^ v3);
        v1 ^= 0xdd;
        for (int i = 0; i < 4; i++) CHAPPE_ROUND(v0, v1, v2, v3);
        chappe_store_le(tag + 8, v0 ^ v1 ^ v2 ^ v3);
    }
    """
    void chappe_siphash128(const unsigned char* key, const unsigned char* data, size_t size,
                           unsigned char* tag) noexcept nogil
